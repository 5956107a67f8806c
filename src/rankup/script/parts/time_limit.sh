# ---- When time runs out -------------------------------------------------------------------------------------------
called='' terminated=''
# All processes of this attempt carry a mark, so that those are found as well that have outlived their parent.
RANKUP_MARK=$$.$(date +%s)/
export RANKUP_MARK
marked() { # their ids, on this host
  (
    mark=$RANKUP_MARK
    unset RANKUP_MARK # those that look for it have none
    grep -lz "^RANKUP_MARK=$mark" /proc/[0-9]*/environ 2>/dev/null | tr -dc '0-9\n'
  )
}
# STOP asks the ranks to save and end: one line, why and until when. By rename, so that nobody reads half of it. They
# look once a second and end with 0: of any other code torchrun would make a failure, and start them again.
ask_to_stop() { # WHY UNTIL
  [ -e "$RUN/STOP" ] && return
  echo "$1 $2" >"$RUN/.STOP" && mv "$RUN/.STOP" "$RUN/STOP"
  say "asked the ranks to save and stop ($1)"
}
# Who has not ended shortly before the end was not asked in a way it understands. Where no attempt may follow, it works
# on until the scheduler ends it.
requeues=$(cat "$RUN/requeues" 2>/dev/null || echo 0)
last_call() {
  [ -n "$called" ] && return
  [ "$requeues" -ge "$MAX_REQUEUES" ] && [ "$ENDED_BY" = scheduler ] && return
  called=yes
  see_writes
  say "the ranks have not answered: this script could not be asked to save. It is ended now, and begins again from"
  say "whatever it has saved by itself. (rankup.should_stop() or run.steps(...) would let it answer.)"
  end_ranks
}
