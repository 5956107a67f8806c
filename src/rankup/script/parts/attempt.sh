# ---- One attempt ---------------------------------------------------------------------------------------------------
say() { echo "==== rankup: $*"; }
# Ends this job if the run is over already: a task of an array that is resumed may be done, and a successor that was
# submitted beforehand may come too late. The exit code is then the run's, for jobs that wait for this one.
begin_attempt() {
  local over attempt
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
}
# Ends an attempt: WORD is for people and for the next attempt, CODE for jobs that wait for this one.
code_for_scheduler='' # if it must be another one
finish() { # WORD CODE
  echo "$1" >"$RUN/outcome"
  echo "$2" >"$RUN/exit_code"
  tidy "$1"
  say "$1, exit code $2"
  [ "$1" = requeue ] || tell_goodput
  exit "${code_for_scheduler:-$2}"
}
# What the devices did over all attempts, if the program's PYTHON has rankup: a line, and goodput.json.
python=''
tell_goodput() {
  case ${python##*/} in python*) ;; *) return ;; esac
  (cd / && timeout 60 "$python" -m rankup.core.goodput "$RUN") 2>/dev/null # modules in the job's folder are not meant
}
# Removes secrets: the agents' scripts, and, if no attempt follows, secrets.env, which all tasks of an array share.
# (`rankup resume` writes it again.)
tidy() { # WORD
  local folder
  rm -f "$RUN"/agent-*.sh
  [ "$1" != requeue ] || [ -z "${requeued:-}" ] || return
  for folder in "$BASE"/task-*/; do
    [ ! -d "$folder" ] || grep -Eqs '^(done|failed|cancelled)$' "$folder/outcome" || return
  done
  rm -f "$BASE/secrets.env"
}
