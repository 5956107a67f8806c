# ---- How it ended --------------------------------------------------------------------------------------------------
# Rank 0 of a program that uses rankup has left a word: `requeue` means saved, and to be continued.
end_attempt() { # PYTHON
  local outcome without=0 why
  python=$1
  [ -z "${holder:-}" ] || kill "$holder" 2>/dev/null # the port is free again
  outcome=$(cat "$RUN/outcome" 2>/dev/null)
  [ -e "$RUN/CANCELLED" ] && finish cancelled 143
  case $code,$outcome,$called$terminated in
    0,failed,*) finish failed 1 ;;
    0,requeue,*) ;;
    # Many programs that are told to end save and end with 0: then only rank 0's word says that all is done.
    0,"done",* | 0,*,) finish "done" 0 ;;
    *)
      if [ -n "${lost:-}" ] && [ -z "$terminated" ]; then
        : # it is requeued below, and resumes from what it has saved by itself
      elif [ -z "$called" ]; then
        [ -n "$terminated" ] || { first_failure; finish failed "$code"; }
        # Cancelled, preempted, or a node has failed: only the scheduler knows which, and whether it starts the job again.
        echo 143 >"$RUN/exit_code"
        rm -f "$RUN"/agent-*.sh
        say "ended by the scheduler"
        exit 143
      fi
      ;;
  esac
  if [ -n "$called" ] && ! made_progress; then
    without=$(($(cat "$RUN/no_progress" 2>/dev/null || echo 0) + 1))
    echo "$without" >"$RUN/no_progress"
    say "this attempt has left no new file from which another one could go on"
  else
    rm -f "$RUN/no_progress"
  fi
  if [ -n "$terminated" ] || grep -qs '^user ' "$RUN/STOP"; then
    say "saved; \`rankup resume\` continues from there"
  elif [ "$requeues" -ge "$MAX_REQUEUES" ]; then
    say "it was requeued $requeues times, and no more than that is allowed: \`rankup resume\` continues it"
  elif [ "$without" -ge 2 ]; then
    why="two attempts in a row have met the time limit and saved nothing: the next one would begin from nothing again"
    echo "$why" >"$RUN/why"
    say "$why"
    say "It needs a longer --time, or to save: by itself, by run.steps(...), or when rankup.should_stop() says so."
    finish failed 75
  else
    echo $((requeues + 1)) >"$RUN/requeues"
    echo 75 >"$RUN/exit_code"
    echo requeue >"$RUN/outcome"
    requeued=yes
    say "requeue $((requeues + 1)) of $MAX_REQUEUES"
    requeue || say "the scheduler refused to requeue: \`rankup resume\` continues it"
  fi
  finish requeue 75
}
