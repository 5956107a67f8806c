#!/usr/bin/env bash
# pid 1 of a host of the lab: host.sh STATE HOST ADDRESS PBS_EXEC UID FOLDER...
# See pbs_lab.py.
set -euo pipefail
state=$1 host=$2 address=$3 prefix=$4 uid=$5
shift 5

hostname "$host"
mount -t proc proc /proc
mount -t tmpfs shm /dev/shm

# shellcheck source=src/rankup/drill/lab/own_tmp.sh
source "$(dirname "$0")/../../src/rankup/drill/lab/own_tmp.sh"
own_tmp "$state/see-$host" "$@"
mount -t tmpfs -o mode=1777 tmp /var/tmp # there a qsub that stays serves the next one, which may be another lab's

# An /etc of its own, with PBS's configuration and the lab's user.
etc=$state/etc-$host home=$state/pbs-$host
rm -rf "$etc"
cp -a /etc "$etc"
cp "$state/hosts" "$etc/hosts"
echo "$host" >"$etc/hostname"
sed -i 's/^hosts:.*/hosts: files/' "$etc/nsswitch.conf" # no name server can be reached
sed -i '/^alice:/d' "$etc/passwd" "$etc/group" "$etc/shadow" # one of this machine has another number
echo "alice:x:$uid:$uid::$state/shared:/bin/bash" >>"$etc/passwd"
echo "alice:x:$uid:" >>"$etc/group"
echo "alice:*:19000:0:99999:7:::" >>"$etc/shadow"
server=$([[ $host == head ]] && echo 1 || echo 0)
printf '%s\n' "PBS_EXEC=$prefix" "PBS_HOME=$home" PBS_SERVER=head "PBS_START_SERVER=$server" "PBS_START_SCHED=$server" \
  "PBS_START_COMM=$server" "PBS_START_MOM=$((1 - server))" >"$etc/pbs.conf"
mount --bind "$etc" /etc

ip link set lo up
if [[ $host == head ]]; then
  until ip addr show bridge 2>/dev/null | grep -q "$address"; do sleep 0.02; done # pbs_lab.py lays it
  if [[ -d /run/postgresql ]]; then mount -t tmpfs -o "mode=2775,uid=$(id -u postgres)" postgres /run/postgresql; fi
else
  until ip link set eth0 up 2>/dev/null; do sleep 0.02; done # pbs_lab.py plugs the cable in
  ip addr add "$address/24" dev eth0
fi

cd /
if [[ ! -e $home/pbs_version ]]; then
  "$prefix/libexec/pbs_habitat"
  # The hosts share all files: output is moved, and not sent.
  # shellcheck disable=SC2016
  echo '$usecp *:/ /' >>"$home/mom_priv/config"
  sed -i 's/^resources: "ncpus, /resources: "ncpus, ngpus, /' "$home/sched_priv/sched_config"
fi
"$prefix/libexec/pbs_init.d" start

# bash reaps the orphans of this PID namespace while it waits.
sleep infinity &
while :; do wait $! || true; done
