# Prints what the agents have printed since the last time. PBS puts what a task prints into the job's own output, which
# is seen after the job has ended: so each agent writes to a file. Opening it again makes NFS show what is new.
show() {
  local file size out
  for file in "$RUN"/logs/node-*.{log,err}; do
    size=$(wc -c 2>/dev/null <"$file") || continue
    [ "$size" -gt "${shown[$file]:-0}" ] || continue
    out=1
    [[ $file != *.err ]] || out=2
    tail -c "+$((${shown[$file]:-0} + 1))" "$file" | head -c "$((size - ${shown[$file]:-0}))" >&"$out"
    shown[$file]=$size
  done
}
# Tells all agents to end, by a file: it says how many seconds their ranks may take to save. (pbsdsh passes a TERM on to
# them, but does not wait for them; pbs_tmrsh does not even pass it on.)
end_agents() {
  local now left
  code=1
  [ -z "$ending" ] || return
  ending=$SECONDS now=$(date +%s)
  # Near the time limit only until this script continues without them.
  left=$((END - STOP_BEFORE / 8 - 2 - now))
  grace=$((now >= END || left > 35 ? 35 : left > 1 ? left : 1))
  echo "$grace" >"$RUN/agents.end"
}
# Whether a node has not said for a minute that it is alive, and the scheduler has lost it as well; while agents end, the
# scheduler's answer is enough.
is_silent() { # NODE
  local word
  word=$(cat "$RUN/agent-$1.alive" 2>/dev/null)
  [ "$word" = "${alive[$1]}" ] || heard[$1]=$SECONDS
  alive[$1]=$word
  [ -n "$ending" ] || [ "$((SECONDS - heard[$1]))" -ge 60 ] || return 1
  is_lost "${HOSTS[$1]}"
}
# Starts all agents at once. The first one that fails, or ends without a code, ends the others. Codes come through files,
# which NFS may show a minute late; pbsdsh ends with 0 whatever its task did, but prints that it failed or could not be
# started.
fan_out() {
  local pids=() late=() alive=() heard=() i said status code=0 ending='' grace
  local -A shown=()
  trap end_agents TERM
  for i in "${!HOSTS[@]}"; do
    late[i]=0 alive[i]='' heard[i]=$SECONDS
    reach "$i" >"$RUN/agent-$i.reach" 2>&1 &
    pids[i]=$!
  done
  while [ "${#pids[@]}" -gt 0 ]; do
    sleep 1
    show
    for i in "${!pids[@]}"; do
      if [ "$((SECONDS % 10))" -eq 0 ] && is_silent "$i"; then
        kill -KILL "${pids[i]}" 2>/dev/null
        wait "${pids[i]}" 2>/dev/null # or bash tells of a killed process, as if it were a rank
        unset "pids[i]"
        end_agents
        continue
      fi
      kill -0 "${pids[i]}" 2>/dev/null && continue
      said=$(cat "$RUN/agent-$i.code" 2>/dev/null)
      if [ -z "$said" ] && ! grep -Eqs 'exit status [1-9]|on spawn' "$RUN/agent-$i.reach"; then
        wait "${pids[i]}"
        status=$?
        # PBS ends it together with this script: then its agent is still running.
        if [ "$status" -eq 143 ] || grep -qs 'killing task' "$RUN/agent-$i.reach"; then end_agents; fi
        [ -z "$ending" ] || continue
        late[i]=$((late[i] + 1))
        [ "$status" -ne 0 ] || [ "${late[i]}" -gt 75 ] || continue
      fi
      unset "pids[i]"
      sed "s/^/node $i (${HOSTS[i]}): /" "$RUN/agent-$i.reach" >&2
      [ "$said" = 0 ] || end_agents
    done
    # The scheduler ends the other agents, with the job.
    [ -z "$ending" ] || [ "$((SECONDS - ending))" -lt "$((grace + 5))" ] || break
  done
  kill -TERM "${pids[@]}" 2>/dev/null
  show
  return "$code"
}
