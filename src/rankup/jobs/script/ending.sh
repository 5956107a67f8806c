# ---- How it ended -------------------------------------------------------------------------------------------------
# Rank 0 of a script that joins in has left a word: `requeue` means saved, and to be continued.
outcome=$(cat "$RUN/outcome" 2>/dev/null)
[ -e "$RUN/CANCELLED" ] && finish cancelled 143
if [ "$code" -eq 0 ]; then
  [ "$outcome" = failed ] && finish failed 1
  [ "$outcome" = requeue ] || finish "done" 0
elif [ -z "$called" ]; then
  if [ -n "$terminated" ]; then
    # Cancelled, preempted, or a node has failed: only the scheduler knows which, and whether it starts the job again.
    echo 143 >"$RUN/exit_code"
    say "ended by the scheduler"
    exit 143
  fi
  finish failed "$code"
fi
requeues=$(cat "$RUN/requeues" 2>/dev/null || echo 0)
if [ -n "$terminated" ] || grep -qs '^user ' "$RUN/STOP"; then
  say "saved; \`rankup resume\` goes on from there"
elif [ "$requeues" -ge "$MAX_REQUEUES" ]; then
  say "it was requeued $requeues times, and no more than that is allowed: \`rankup resume\` goes on"
else
  echo $((requeues + 1)) >"$RUN/requeues"
  echo 75 >"$RUN/exit_code"
  echo requeue >"$RUN/outcome"
  say "requeue $((requeues + 1)) of $MAX_REQUEUES"
  requeue || say "the scheduler refused to requeue: \`rankup resume\` goes on"
fi
finish requeue 75
