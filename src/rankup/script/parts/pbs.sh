# ---- What PBS says about this job ----------------------------------------------------------------------------------
# Sets JOB, QUEUE, HOSTS and END: when PBS will end the job, in epoch seconds; 0 if nobody knows.
read_allocation() {
  local limit
  JOB=$PBS_JOBID
  QUEUE=${PBS_QUEUE:-}
  ENDED_BY=scheduler # when time is up
  # The node file names a host once per process. Hosts in the order in which they first appear (never sort -u): this
  # script runs on the first one.
  mapfile -t HOSTS < <(awk '!seen[$0]++' "$PBS_NODEFILE")
  # A job without a time limit of its own has the queue's. PBS warns late or never, so this script watches the clock.
  limit=$(details "$JOB" | sed -n 's/.* Resource_List\.walltime = \([0-9:]*\).*/\1/p' | awk -F: '{ print ($1 * 60 + $2) * 60 + $3 }')
  limit=${limit:-$TIME}
  END=$((limit > 0 ? $(date +%s) + limit : 0))
}
details() { timeout 30 qstat -f "${1%%@*}" 2>/dev/null | tr -d '\n\t'; } # PBS breaks long lines
# Only operators may qrerun. So a successor is submitted: the same script in the same run directory, after this job.
requeue() {
  local next successor="RANKUP_SUCCESSOR=1${RANKUP_RUN:+,RANKUP_RUN=$BASE}"
  if [ "$NODES_MAY_SUBMIT" != yes ]; then
    say "a successor was submitted beforehand"
  elif [ -n "${RANKUP_TASK:-}" ]; then
    # One task of an array becomes a job of its own.
    next=$(grep -Ev '^#PBS -[Jt] ' "$BASE/job.sh" | qsub -v "$successor,RANKUP_TASK=$RANKUP_TASK") &&
      echo "$next $RANKUP_TASK" >>"$BASE/jobs"
  else
    next=$(qsub -W "depend=afterany:$JOB" -v "$successor" "$RUN/job.sh") &&
      echo "$next" >>"$RUN/jobs" && hand_over "$next"
  fi
}
# Jobs that wait for the success of this one, or for its end, now wait for its successor. PBS still keeps them in this
# job's own list, and deletes those that wait for success if it ends with 75: so it ends with 0 if all were changed.
hand_over() { # TO
  local id waits_for told='' untold=''
  for id in $(details "$JOB" | grep -oE 'before(ok|any):[^, ]*' | cut -d : -f 2- | tr : ' '); do
    [ "${id%%.*}" != "${1%%.*}" ] || continue # the successor itself
    waits_for=$(details "$id" | sed -n 's/.* depend = \([^ ]*\).*/\1/p')
    if qalter -W "depend=${waits_for//":$JOB"/":$1"}" "${id%%@*}"; then told=yes; else untold="$untold ${id%%@*}"; fi
  done
  [ -z "$untold" ] || say "could not be told to wait for $1 instead of $JOB:$untold"
  [ -z "$told" ] || [ -n "$untold" ] || code_for_scheduler=0
}
