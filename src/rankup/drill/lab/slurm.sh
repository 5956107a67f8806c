# shellcheck shell=bash disable=SC2154
# Sourced by node.sh, which has set state and host: SLURM on a host.
# Every host has a munged of its own at the same path: one for all would take a credential's second reader for a replay.
mount -t tmpfs munge "$state/munge"
munged --key-file="$state/munge.key" --socket="$state/munge/socket" --pid-file="$state/munge/pid" \
  --log-file="$state/munged-$host.log" --seed-file="$state/munge/seed" --num-threads=2
if [[ $host == head ]]; then
  slurmctld
else
  slurmd -b -N "$host"
fi
