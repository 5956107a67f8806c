# ---- Was a node lost? ----------------------------------------------------------------------------------------------
# PBS starts a job anew that has lost its first node. When any other is lost, nothing happens but that the ranks fail, or
# wait for each other: then this script asks for a successor. It takes PBS a minute to notice.
lost=''
if [ "$code" -ne 0 ] && [ -z "$called$terminated" ] && [ ! -e "$RUN/CANCELLED" ]; then
  silent=()
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
  [ -z "$lost" ] || say "the scheduler has lost a node of this job:$lost"
fi
