#!/bin/bash
#SBATCH --job-name=cyclone
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=1
#SBATCH --time=00:10:00
#SBATCH --signal=B:USR1@60
#SBATCH --requeue
#SBATCH --open-mode=append
#SBATCH --output=cyclone.log

export MASTER_ADDR=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)
export MASTER_PORT=29511

requeue() {
  kill -USR1 "$child"
  wait "$child"
  [ -e finished ] || scontrol requeue "$SLURM_JOB_ID"
}
trap requeue USR1

srun --kill-on-bad-exit=1 bash -c 'export RANK=$SLURM_PROCID WORLD_SIZE=$SLURM_NTASKS LOCAL_RANK=$SLURM_LOCALID
  exec python train.py' &
child=$!
wait "$child"
code=$?
wait "$child"
exit "$code"
