# An Open MPI that was not built for PBS reaches the nodes by ssh, unless it is told PBS's own way. (One that was does
# not ask.) pbs_tmrsh starts its command with next to no environment, and without a shell.
if command -v pbs_tmrsh >/dev/null && [ -z "${OMPI_MCA_plm_rsh_agent:-}" ] && [[ $RUN != *[[:space:]:,]* ]]; then
  cat >"$RUN/rsh" <<'END_OF_SCRIPT'
#!/bin/sh
host=$1
shift
exec pbs_tmrsh "$host" /usr/bin/env "PATH=$PATH" "LD_LIBRARY_PATH=$LD_LIBRARY_PATH" /bin/sh -c "$*"
END_OF_SCRIPT
  chmod 700 "$RUN/rsh"
  export OMPI_MCA_plm_rsh_agent=$RUN/rsh
fi
