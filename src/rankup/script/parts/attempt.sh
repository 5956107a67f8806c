say() { echo "==== rankup: $*"; }
# Done is done, for a task of an array that is resumed; a successor that was submitted beforehand may be too late. It
# ends with the run's code, for what waits for it.
case $(cat "$RUN/outcome" 2>/dev/null) in
  "done") over=yes ;;
  failed | cancelled) over=${RANKUP_SUCCESSOR:-} ;;
  *) over='' ;;
esac
if [ -n "$over" ] || [ -e "$RUN/CANCELLED" ]; then
  say "nothing is left to do for job $JOB"
  exit "$(cat "$RUN/exit_code" 2>/dev/null || echo 0)"
fi
rm -f "$RUN/STOP" "$RUN/outcome" "$RUN/outcome.json" "$RUN/exit_code" "$RUN/failure" "$RUN/failures" "$RUN/why"
log_file=$(readlink -f "/proc/$$/fd/1") # where this script writes, if that is a file
log_began=$(stat -Lc %s "$log_file" 2>/dev/null || echo 0)
attempt=$(($(wc -l 2>/dev/null <"$RUN/attempts" || echo 0) + 1))
echo "$attempt $JOB $(date +%s) $(hostname)" >>"$RUN/attempts"
say "attempt $attempt, job $JOB, $(date '+%F %T'), $(hostname) ===="

# No secrets are left behind: not in the agents' scripts, and when no attempt follows not in secrets.env, which is for all
# tasks of an array. (`rankup resume` writes them anew.)
tidy() { # WORD
  local folder
  rm -f "$RUN"/agent-*.sh
  [ "$1" != requeue ] || [ -z "${requeued:-}" ] || return
  for folder in "$BASE"/task-*/; do
    [ ! -d "$folder" ] || grep -Eqs '^(done|failed|cancelled)$' "$folder/outcome" || return
  done
  rm -f "$BASE/secrets.env"
}
# How an attempt ends: the word for people and for the next attempt, and the code for whoever waits.
code_for_scheduler='' # where it must not be the same
finish() { # WORD CODE
  echo "$1" >"$RUN/outcome"
  echo "$2" >"$RUN/exit_code"
  tidy "$1"
  say "$1, exit code $2"
  exit "${code_for_scheduler:-$2}"
}
