# ---- What SLURM says --------------------------------------------------------------------------------------------
# The batch shell runs on the first node. SLURM_JOB_NODELIST is short for many names: scontrol reads it, regexes fail.
JOB=${SLURM_ARRAY_JOB_ID:+${SLURM_ARRAY_JOB_ID}_$SLURM_ARRAY_TASK_ID}
JOB=${JOB:-$SLURM_JOB_ID}
QUEUE=${SLURM_JOB_PARTITION:-}
mapfile -t HOSTS < <(scontrol show hostnames "$SLURM_JOB_NODELIST")
# When SLURM will end the job, in epoch seconds; 0 where nobody knows.
END=$(date -d "$(squeue --noheader --jobs "$JOB" --format %e)" +%s 2>/dev/null || echo 0)
# The same job once more, under the same id and into the same log. SLURM waits about two minutes before it starts.
requeue() { scontrol requeue "$JOB"; }
