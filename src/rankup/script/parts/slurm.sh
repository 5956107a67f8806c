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
# Requeues the job under the same id, with the same log. SLURM waits about two minutes before it starts again: without
# the nodes on which nothing could be started, and those that the team has noted as bad.
requeue() {
  local bad
  scontrol requeue "$JOB" || return
  # (SLURM ends this script some seconds later, and takes this for a waiting job only.)
  # shellcheck disable=SC2086 # one or more
  bad=$(printf '%s,' ${lost:-})$([ -z "${BAD_NODES:-}" ] || list_bad_nodes)
  bad=$(tr -s , <<<"$bad,$(scontrol --oneliner show job "$JOB" | sed -n 's/.* ExcNodeList=\([^ (]*\).*/\1/p')" | sed 's/^,//; s/,$//')
  [ -z "$bad" ] || scontrol update "JobId=$JOB" "ExcNodeList=$bad" || say "the next attempt may get these nodes again: $bad"
}
