#!/usr/bin/env bash
# pid 1 of a host of the lab: node.sh STATE HOST ADDRESS UID FOLDER...
# See lab.py.
set -euo pipefail
state=$1 host=$2 address=$3 uid=$4
shift 4

hostname "$host"
mount -t proc proc /proc
mount -t tmpfs shm /dev/shm
mount --bind "$state/hosts" /etc/hosts
mount --bind "$state/etc" /etc/slurm
sed 's/^hosts:.*/hosts: files/' /etc/nsswitch.conf >"$state/nsswitch-$host"  # no name server can be reached
mount --bind "$state/nsswitch-$host" /etc/nsswitch.conf

# The lab's user, whom this machine does not have.
for file in passwd group; do
  grep -v '^alice:' "/etc/$file" >"$state/$file-$host"
done
echo "alice:x:$uid:$uid::$state/shared/alice:/bin/bash" >>"$state/passwd-$host"
echo "alice:x:$uid:" >>"$state/group-$host"
mount --bind "$state/passwd-$host" /etc/passwd
mount --bind "$state/group-$host" /etc/group

# shellcheck source=tests/lab_folders.sh
source "$(dirname "$0")/../lab_folders.sh"
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
