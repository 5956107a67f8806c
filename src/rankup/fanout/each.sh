# What the agents have printed since the last look. PBS takes what a task prints for its own output, which is seen when
# the job has ended: so each agent writes to a file. It is opened anew each time, since NFS then shows what is new.
show() {
  local node size
  for node in "${!HOSTS[@]}"; do
    size=$(wc -c 2>/dev/null <"$RUN/logs/node-$node.log") || continue
    [ "$size" -gt "${shown[node]}" ] || continue
    tail -c "+$((shown[node] + 1))" "$RUN/logs/node-$node.log" | head -c "$((size - shown[node]))"
    shown[node]=$size
  done
}
# All agents at once; the first one that fails, or is gone without a word, ends the others. Their codes come through
# files, which NFS may show a minute late; pbsdsh ends with 0 whatever its task did, but says so if that failed.
fan_out() {
  local pids=() shown=() late=() i said code=0 ending=''
  trap 'code=1; kill -TERM "${pids[@]}" 2>/dev/null' TERM
  for i in "${!HOSTS[@]}"; do
    shown[i]=0 late[i]=0
    reach "$i" >"$RUN/agent-$i.reach" 2>&1 &
    pids[i]=$!
  done
  while [ "${#pids[@]}" -gt 0 ]; do
    sleep 1
    show
    for i in "${!pids[@]}"; do
      kill -0 "${pids[i]}" 2>/dev/null && continue
      said=$(cat "$RUN/agent-$i.code" 2>/dev/null)
      if [ -z "$said" ] && [ "$code" -eq 0 ] && [ "${late[i]}" -lt 75 ] && wait "${pids[i]}" &&
        ! grep -qs 'exit status [1-9]' "$RUN/agent-$i.reach"; then
        late[i]=$((late[i] + 1))
        continue
      fi
      unset "pids[i]"
      cat "$RUN/agent-$i.reach"
      [ "$said" = 0 ] && continue
      code=1
      kill -TERM "${pids[@]}" 2>/dev/null
      ending=${ending:-$SECONDS}
    done
    # Whoever does not end then is ended with the job, by the scheduler.
    [ -z "$ending" ] || [ $((SECONDS - ending)) -lt 8 ] || break
  done
  show
  return "$code"
}
