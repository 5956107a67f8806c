# ---- Until the ranks end -------------------------------------------------------------------------------------------
# The ranks run in the background, since bash handles signals between commands only. USR1 comes before the time limit
# (--signal) or before a preemption, TERM when the job is cancelled or preempted; the script also watches the clock.
watch_ranks() {
  local now told=''
  trap 'ask_to_stop signal "$((END > 0 ? END : $(date +%s) + 30))"' USR1
  trap '[ -n "$terminated" ] || are_told_too || end_ranks; terminated=yes; ask_to_stop terminated "$(($(date +%s) + 10))"' TERM
  rm -f "$RUN"/trained-alone-*
  while kill -0 "$workers" 2>/dev/null; do
    sleep 1
    now=$(date +%s)
    [ "$SECONDS" -lt 60 ] || tell_separate_models
    [ "$END" -eq 0 ] || [ "$now" -lt "$((END - STOP_BEFORE))" ] || ask_to_stop time-limit "$((END - STOP_BEFORE / 4))"
    [ "$END" -eq 0 ] || [ "$now" -lt "$((END - STOP_BEFORE / 4))" ] || last_call
    [ -z "$called" ] || [ "$now" -lt "$((END - STOP_BEFORE / 8))" ] || kill -KILL "$workers" 2>/dev/null
  done
  wait "$workers"
  code=$?
  tell_separate_models
  # A torchrun that was killed leaves its ranks, which would train on beside the next attempt's.
  # shellcheck disable=SC2046
  kill -KILL $(marked) 2>/dev/null
}
tell_separate_models() { # once
  local alone=("$RUN"/trained-alone-*)
  if [ -n "$told" ] || [ "${#alone[@]}" -lt 2 ]; then return; fi
  told=yes
  say "${#alone[@]} processes each train their own model: they are in no process group. For one model: rankup.init() and"
  say "run.prepare(), or init_process_group() and DistributedDataParallel"
}
