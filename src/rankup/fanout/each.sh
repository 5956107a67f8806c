# All agents at once; the first one that fails ends the others. Their codes come through files: NFS may show those up
# to a minute late.
fan_out() {
  local pids=() i code=0
  trap 'kill -TERM "${pids[@]}" 2>/dev/null' TERM
  for i in "${!HOSTS[@]}"; do
    reach "$i" &
    pids+=($!)
  done
  for i in "${!HOSTS[@]}"; do
    if ! wait -n || grep -qsv '^0$' "$RUN"/agent-*.code; then
      code=1
      kill -TERM "${pids[@]}" 2>/dev/null
    fi
  done
  for i in "${!HOSTS[@]}"; do
    for _ in {1..60}; do
      [ -s "$RUN/agent-$i.code" ] || [ "$code" -ne 0 ] && break
      sleep 1
    done
    [ "$(cat "$RUN/agent-$i.code" 2>/dev/null)" = 0 ] || code=1
  done
  return "$code"
}
