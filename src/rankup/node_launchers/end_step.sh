# How this script tells the agents to end. After a TERM srun KILLs its tasks, so SLURM tells them; other steps of the job
# are not ours.
end_ranks() { scancel --signal=TERM "$SLURM_JOB_ID.$(cat "$RUN/agents.step")" || kill -TERM "$workers"; }
