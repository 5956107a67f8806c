# An Open MPI that was not built for PBS reaches the nodes by ssh, unless it is given PBS's own remote shell. (One that was
# built for PBS does not use it.) pbs_tmrsh starts its command with nearly no environment, and without a shell.
use_pbs_for_mpirun() {
  if ! command -v pbs_tmrsh >/dev/null || [ -n "${OMPI_MCA_plm_rsh_agent:-}" ] || [[ $RUN == *[[:space:]:,]* ]]; then
    return
  fi
  cat >"$RUN/rsh" <<'END_OF_SCRIPT'
#!/bin/sh
# Open MPI removes a host's domain, and pbs_tmrsh knows a node by its full name only.
host=$(awk -v host="$1" '$0 == host || index($0, host ".") == 1 { print; exit }' "$PBS_NODEFILE")
host=${host:-$1}
shift
exec pbs_tmrsh "$host" /usr/bin/env "PBS_NODEFILE=$PBS_NODEFILE" "PATH=$PATH" "LD_LIBRARY_PATH=$LD_LIBRARY_PATH" /bin/sh -c "$*"
END_OF_SCRIPT
  chmod 700 "$RUN/rsh"
  export OMPI_MCA_plm_rsh_agent=$RUN/rsh
}
