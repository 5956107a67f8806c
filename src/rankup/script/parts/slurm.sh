# ---- What SLURM says --------------------------------------------------------------------------------------------
# The batch shell runs on the first node. SLURM_JOB_NODELIST is short for many names: scontrol reads it, regexes fail.
JOB=${SLURM_ARRAY_JOB_ID:+${SLURM_ARRAY_JOB_ID}_$SLURM_ARRAY_TASK_ID}
JOB=${JOB:-$SLURM_JOB_ID}
QUEUE=${SLURM_JOB_PARTITION:-}
ENDED_BY=scheduler # when time is up
mapfile -t HOSTS < <(scontrol show hostnames "$SLURM_JOB_NODELIST")
# When SLURM will end the job, in epoch seconds; 0 where nobody knows. (To `date`, no text at all is last midnight.)
END=$(squeue --noheader --jobs "$JOB" --format %e)
END=$(date -d "${END:-unknown}" +%s 2>/dev/null || echo "${SLURM_JOB_END_TIME:-0}")
# After `sbatch --export=NONE` srun would hand on nothing, not even what this script exports, or PATH.
export SLURM_EXPORT_ENV=ALL
trap : USR1 # there is nobody to be asked yet
# The same job once more, under the same id and into the same log. SLURM waits about two minutes before it starts.
requeue() { scontrol requeue "$JOB"; }
