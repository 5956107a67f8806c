#!/usr/bin/env bash
# pid 1 of a host of the lab: node.sh STATE HOST ADDRESS SCHEDULER FOLDER...
# See lab.py.
set -euo pipefail
state=$1 host=$2 address=$3 scheduler=$4
shift 4

hostname "$host"
mount -t proc proc /proc
mount -t tmpfs shm /dev/shm
mount --bind "$state/etc" /etc

# shellcheck source=src/rankup/drill/lab/own_tmp.sh
source "$(dirname "$0")/own_tmp.sh"
own_tmp "$state/see-$host" "$@"

ip link set lo up
if [[ $host == head ]]; then
  until ip addr show bridge 2>/dev/null | grep -q "$address"; do sleep 0.02; done  # lab.py lays it
else
  until ip link set eth0 up 2>/dev/null; do sleep 0.02; done  # lab.py plugs the cable in
  ip addr add "$address/24" dev eth0
fi

cd /
# shellcheck source=src/rankup/drill/lab/slurm.sh
source "$(dirname "$0")/$scheduler.sh"

# bash reaps the orphans of this PID namespace while it waits.
sleep infinity &
while :; do wait $! || true; done
