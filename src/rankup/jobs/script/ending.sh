# ---- How it ended -------------------------------------------------------------------------------------------------
# Rank 0 of a script that joins in has left a word: `requeue` means saved, and to be continued.
outcome=$(cat "$RUN/outcome" 2>/dev/null)
[ -e "$RUN/CANCELLED" ] && finish cancelled 143
case $code,$outcome,$called$terminated in
  0,failed,*) finish failed 1 ;;
  0,requeue,*) ;;
  # Many a program that is told to end saves what it has, and ends with 0: then only rank 0's word says that all is done.
  0,"done",* | 0,*,) finish "done" 0 ;;
  *)
    if [ -z "$called" ]; then
      [ -n "$terminated" ] || finish failed "$code"
      # Cancelled, preempted, or a node has failed: only the scheduler knows which, and whether it starts the job again.
      echo 143 >"$RUN/exit_code"
      say "ended by the scheduler"
      exit 143
    fi
    ;;
esac
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
