# An Open MPI that was not built for PBS reaches the nodes by ssh, unless it is told PBS's own way. (One that was does
# not ask.) pbs_tmrsh starts its command with next to no environment, and without a shell.
if command -v pbs_tmrsh >/dev/null && [ -z "${OMPI_MCA_plm_rsh_agent:-}" ] && [[ $RUN != *[[:space:]:,]* ]]; then
  cat >"$RUN/rsh" <<'END_OF_SCRIPT'
#!/bin/sh
# Open MPI takes a host's domain off, and pbs_tmrsh knows a node by its whole name only.
host=$(awk -v host="$1" '$0 == host || index($0, host ".") == 1 { print; exit }' "$PBS_NODEFILE")
host=${host:-$1}
shift
exec pbs_tmrsh "$host" /usr/bin/env "PBS_NODEFILE=$PBS_NODEFILE" "PATH=$PATH" "LD_LIBRARY_PATH=$LD_LIBRARY_PATH" /bin/sh -c "$*"
END_OF_SCRIPT
  chmod 700 "$RUN/rsh"
  export OMPI_MCA_plm_rsh_agent=$RUN/rsh
fi
