# ---- Was a node lost? ----------------------------------------------------------------------------------------------
# If a job loses its first node, PBS starts it again. If it loses another node, PBS does nothing, and the ranks fail or
# wait for each other: then this script requests a successor. PBS needs a minute to notice.
find_lost_nodes() {
  local i host patience silent=()
  lost=''
  if [ "$code" -eq 0 ] || [ -n "$called$terminated" ] || [ -e "$RUN/CANCELLED" ]; then return; fi
  for i in "${!HOSTS[@]}"; do
    if [ "$i" -eq 0 ] || [ -s "$RUN/agent-$i.code" ]; then continue; fi
    grep -Eqs 'exit status [1-9]|on spawn' "$RUN/agent-$i.reach" || silent+=("${HOSTS[i]}")
  done
  # Without agents (mpirun) nobody knows which node is silent: PBS may know already.
  patience=$SECONDS
  [ ! -e "$RUN/agents.end" ] || patience=$((SECONDS + 90))
  while [ "${#silent[@]}" -gt 0 ]; do
    for host in "${silent[@]}"; do
      if is_lost "$host"; then lost="$lost $host"; fi
    done
    if [ -n "$lost" ] || [ "$SECONDS" -ge "$patience" ]; then break; fi
    sleep 5
  done
  [ -n "$lost" ] || return
  say "the scheduler has lost a node of this job:$lost"
  # shellcheck disable=SC2086 # one or more
  [ -z "${BAD_NODES:-}" ] || note_bad_nodes "lost by PBS" $lost
}
