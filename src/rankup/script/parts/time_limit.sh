# ---- When time runs out --------------------------------------------------------------------------------------------
# All processes of this attempt carry a mark: so `marked` finds also those that have outlived their parent.
mark_processes() {
  called='' terminated='' wrote=''
  requeues=$(cat "$RUN/requeues" 2>/dev/null || echo 0)
  RANKUP_MARK=$$.$(date +%s)/
  export RANKUP_MARK
}
# STOP asks the ranks to save and end: one line, why and until when. It is renamed into place, so that nobody reads half
# of it. Ranks look once a second and end with 0: after any other code torchrun would start them again.
ask_to_stop() { # WHY UNTIL
  [ -e "$RUN/STOP" ] && return
  echo "$1 $2" >"$RUN/.STOP" && mv "$RUN/.STOP" "$RUN/STOP"
  say "asked the ranks to save and stop ($1)"
}
# Processes that ignore the stop request are terminated shortly before the time limit. If no attempt may follow, they
# work on until the scheduler ends them.
last_call() {
  [ -n "$called" ] && return
  [ "$requeues" -ge "$MAX_REQUEUES" ] && [ "$ENDED_BY" = scheduler ] && return
  called=yes
  see_writes
  say "the ranks have not answered: this program could not be asked to save. It is terminated now, and starts again"
  say "from what it has saved by itself. (With rankup.should_stop() or run.steps(...) it would answer.)"
  end_ranks
}
