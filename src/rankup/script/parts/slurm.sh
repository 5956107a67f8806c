# ---- What SLURM says about this job --------------------------------------------------------------------------------
# Sets JOB, QUEUE, HOSTS and END: when SLURM will end the job, in epoch seconds; 0 if nobody knows. The batch shell runs
# on the first host.
read_allocation() {
  JOB=${SLURM_ARRAY_JOB_ID:+${SLURM_ARRAY_JOB_ID}_$SLURM_ARRAY_TASK_ID}
  JOB=${JOB:-$SLURM_JOB_ID}
  QUEUE=${SLURM_JOB_PARTITION:-}
  ENDED_BY=scheduler # when time is up
  # SLURM_JOB_NODELIST abbreviates the names: scontrol reads it, regular expressions fail.
  mapfile -t HOSTS < <(scontrol show hostnames "$SLURM_JOB_NODELIST")
  END=$(squeue --noheader --jobs "$JOB" --format %e)
  # (To `date`, an empty text is last midnight.)
  END=$(date -d "${END:-unknown}" +%s 2>/dev/null || echo "${SLURM_JOB_END_TIME:-0}")
  # After `sbatch --export=NONE` srun would pass on nothing, not even PATH or what this script exports.
  export SLURM_EXPORT_ENV=ALL
  trap : USR1 # until there are ranks to be asked
}
# Requeues the job under the same id, with the same log. SLURM waits about two minutes before it starts again.
requeue() { scontrol requeue "$JOB"; }
