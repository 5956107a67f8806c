#!/usr/bin/env bash
# pid 1 of a host of the lab: node.sh STATE HOST ADDRESS FOLDER...
# See lab.py.
set -euo pipefail
state=$1 host=$2 address=$3
shift 3

hostname "$host"
mount -t proc proc /proc
mount -t tmpfs shm /dev/shm
mount --bind "$state/etc" /etc/slurm
for file in "$state"/etc-files/*; do
  mount --bind "$file" "/etc/${file##*/}"
done

# shellcheck source=src/rankup/drill/lab/own_tmp.sh
source "$(dirname "$0")/own_tmp.sh"
own_tmp "$state/see-$host" "$@"

ip link set lo up
if [[ $host != head ]]; then
  until ip link set eth0 up 2>/dev/null; do sleep 0.02; done  # lab.py plugs the cable in
  ip addr add "$address/24" dev eth0
fi

# Every host has a munged of its own at the same path: one for all would take a credential's second reader for a replay.
mount -t tmpfs munge "$state/munge"
munged --key-file="$state/munge.key" --socket="$state/munge/socket" --pid-file="$state/munge/pid" \
  --log-file="$state/munged-$host.log" --seed-file="$state/munge/seed" --num-threads=2

cd /
if [[ $host == head ]]; then
  until ip addr show bridge 2>/dev/null | grep -q "$address"; do sleep 0.02; done
  slurmctld
else
  slurmd -b -N "$host"
fi

# bash reaps the orphans of this PID namespace while it waits.
sleep infinity &
while :; do wait $! || true; done
