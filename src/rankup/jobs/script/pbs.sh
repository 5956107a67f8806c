# ---- What PBS says ----------------------------------------------------------------------------------------------
# The node file names a host once per process. Hosts in the order in which they first appear (never sort -u): this
# script runs on the first one.
JOB=$PBS_JOBID
QUEUE=${PBS_QUEUE:-}
ENDED_BY=scheduler # when time is up
mapfile -t HOSTS < <(awk '!seen[$0]++' "$PBS_NODEFILE")
# When PBS will end the job, in epoch seconds; 0 where nobody said. PBS warns late or never: this script keeps time.
END=$((TIME > 0 ? $(date +%s) + TIME : 0))
# qrerun is for operators. A successor of the same script goes on, in the same run directory, when this job has ended.
requeue() {
  local next
  if [ "$NODES_MAY_SUBMIT" != yes ]; then
    say "a successor was submitted beforehand"
  elif [ -n "${RANKUP_TASK:-}" ]; then
    # One task of an array becomes a job of its own.
    next=$(grep -Ev '^#PBS -[Jt] ' "$BASE/job.sh" | qsub -v "$SUCCESSOR,RANKUP_TASK=$RANKUP_TASK") &&
      echo "$next $RANKUP_TASK" >>"$BASE/jobs"
  else
    next=$(qsub -W "depend=afterany:$JOB" -v "$SUCCESSOR" "$RUN/job.sh") &&
      echo "$next" >>"$RUN/jobs" && hand_over "$next"
  fi
}
# Jobs that wait for this one to end well wait for the successor from now on: an end with 75 would delete them.
hand_over() { # TO
  local id waits_for
  for id in $(details "$JOB" | sed -n 's/.*beforeok:\([^, ]*\).*/\1/p' | tr : ' '); do
    waits_for=$(details "$id" | sed -n 's/.* depend = \([^ ]*\).*/\1/p')
    qalter -W "depend=${waits_for//":$JOB"/":$1"}" "${id%%@*}"
  done
}
details() { qstat -f "${1%%@*}" 2>/dev/null | tr -d '\n\t'; } # PBS breaks long lines
