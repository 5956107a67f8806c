# How this script tells the ranks to end. After a TERM srun KILLs its tasks. SLURM can tell the tasks without this
# shell; and when SLURM tells this shell to end, it tells them as well.
end_ranks() { scancel --signal=TERM "$SLURM_JOB_ID" || kill -TERM "$workers"; }
# shellcheck disable=SC2317,SC2329 # a trap calls it
are_told_too() { true; }
