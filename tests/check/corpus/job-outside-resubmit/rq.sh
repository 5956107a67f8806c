#!/bin/bash
#SBATCH --job-name=rq
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=4
#SBATCH --gpus-per-node=4
#SBATCH --cpus-per-task=12
#SBATCH --time=04:00:00
#SBATCH --signal=B:USR1@300
#SBATCH --requeue
#SBATCH --open-mode=append
#SBATCH --output=rq-%j.log

child=
on_usr1() {
    echo "$(date) time limit near, asking for a requeue"
    kill -TERM "$child"
    wait "$child"
    scontrol requeue "$SLURM_JOB_ID"
    exit 0
}
trap on_usr1 USR1

export MASTER_ADDR=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)
export MASTER_PORT=$(( 15000 + (SLURM_JOB_ID % 20000) ))
srun --kill-on-bad-exit=1 python -u train.py --resume auto &
child=$!
wait $child
rc=$?
echo "srun ended with $rc"
exit $rc
