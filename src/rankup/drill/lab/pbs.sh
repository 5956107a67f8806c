# shellcheck shell=bash disable=SC1091,SC2154
# Sourced by node.sh, which has set state and host: PBS on a host.
home=$state/pbs-$host server=$([[ $host == head ]] && echo 1 || echo 0)
{
  cat /etc/pbs.conf
  printf '%s\n' "PBS_HOME=$home" "PBS_START_SERVER=$server" "PBS_START_SCHED=$server" "PBS_START_COMM=$server" \
    "PBS_START_MOM=$((1 - server))"
} >"$state/pbs-$host.conf"
mount --bind "$state/pbs-$host.conf" /etc/pbs.conf
source /etc/pbs.conf
if [[ -d /run/postgresql ]]; then mount -t tmpfs -o "mode=2775,uid=$(id -u postgres)" postgres /run/postgresql; fi

if [[ ! -e $home/pbs_version ]]; then
  # PBS does not wait until its database, just started, takes connections: on a busy machine the first tries may fail.
  for try in 1 2 3 4 5; do
    "$PBS_EXEC/libexec/pbs_habitat" && break
    ((try < 5)) || exit 1
    pkill -9 -x postgres || true  # those of this host: it has process ids of its own
    rm -rf "$home"
    sleep "$try"
  done
  # The hosts share all files: output is moved, and not sent.
  # shellcheck disable=SC2016
  echo '$usecp *:/ /' >>"$home/mom_priv/config"
  sed -i 's/^resources: "ncpus, /resources: "ncpus, ngpus, /' "$home/sched_priv/sched_config"
fi
"$PBS_EXEC/libexec/pbs_init.d" start
