# ---- No scheduler: this machine alone -----------------------------------------------------------------------------
JOB=$$
QUEUE=
ENDED_BY=script # when time is up
HOSTS=("$(hostname)")
END=$((TIME > 0 ? $(date +%s) + TIME : 0))
requeue() { exec bash "$RUN/job.sh"; }
