# ---- No scheduler: this machine alone ------------------------------------------------------------------------------
# Sets JOB, QUEUE, HOSTS and END: when the time is up, in epoch seconds; 0 if there is no limit.
read_allocation() {
  JOB=$$
  QUEUE=''
  ENDED_BY=script # when time is up
  HOSTS=("$(hostname)")
  END=$((TIME > 0 ? $(date +%s) + TIME : 0))
}
requeue() { exec bash "$RUN/job.sh"; }
