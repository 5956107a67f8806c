# ---- Whether another attempt would get further ---------------------------------------------------------------------
# A program that could not be asked to save starts again from what it has saved by itself. If that is nothing, twice in a
# row, then no attempt will ever get further.
see_writes() { # just before the ranks are ended: did one of them write more to a disk than lines of output?
  local id
  # A line that is added to a file is a page to the disk, each time that the last one was written: 4 kB every few seconds.
  wrote=$(for id in $(marked); do cat "/proc/$id/io"; done 2>/dev/null |
    awk -v seconds="$SECONDS" '/^write_bytes:/ && $2 > 4194304 + 2048 * seconds { print "yes"; exit }')
}
# Whether any file is newer than the beginning of this attempt: where it runs, in its run directory and in PLACES. Files of
# another user or of rankup's own do not count, nor what Python compiles. No answer in time counts as progress.
# What --saves names decides alone, with the run's own snapshots.
made_progress() {
  local pattern place places=("$RUN") found seconds=$((STOP_BEFORE / 16 + 1))
  if [ "${#SAVES[@]}" -gt 0 ]; then
    mapfile -t places < <(for pattern in "${SAVES[@]}"; do compgen -G "$pattern"; done)
    found=$(timeout "$((seconds < 10 ? seconds : 10))" \
      find -H "${places[@]}" "$RUN/snapshots" -type f -newer "$RUN/attempts" -print -quit 2>/dev/null ||
      [ "$?" -ne 124 ] || echo late)
    [ -n "$found" ]
    return
  fi
  [ -z "$wrote" ] || return 0
  for place in "$PWD" "${PLACES[@]}"; do
    [ -d "$place" ] || place=${place%/*}
    [ ! -d "$place" ] || places+=("$place")
  done
  found=$(timeout "$((seconds < 10 ? seconds : 10))" find -H "${places[@]}" \
    \( \( -path "$RUNS/*" ! -path "$RUN" ! -path "$RUN/*" \) -o -path "$RUN/logs" -o -path "$RUN/records" \
    -o -path "$RUN/stage" -o -name .git -o -name __pycache__ \) -prune -o -type f -newer "$RUN/attempts" \
    -uid "$(stat -c %u "$RUN/attempts")" \
    ! \( -path "$RUN/*" ! -path "$RUN/*/*" \( -name 'agent*' -o -name 'exit_code' -o -name 'failure*' -o -name hosts \
    -o -name jobs -o -name listening -o -name 'no_progress' -o -name 'outcome*' -o -name rank.sh -o -name requeues \
    -o -name rsh -o -name sampler.sh -o -name stage.py -o -name STACKS -o -name '*STOP' \) \) \
    ! -samefile "/proc/$$/fd/1" ! -samefile "/proc/$$/fd/2" -print -quit 2>/dev/null ||
    [ "$?" -ne 124 ] || echo late)
  [ -n "$found" ]
}
