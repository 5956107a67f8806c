#!/bin/bash
#SBATCH --nodes=1
#SBATCH --gpus-per-node=8
#SBATCH --ntasks-per-node=8
#SBATCH --cpus-per-gpu=8
#SBATCH --signal=USR2@120
#SBATCH --requeue
#SBATCH --open-mode=append
export MASTER_ADDR=127.0.0.1 MASTER_PORT=$((29500 + SLURM_JOB_ID % 1000))
srun --kill-on-bad-exit python ddp.py
code=$?
if [[ $code -eq 85 ]]; then scontrol requeue $SLURM_JOB_ID; fi
exit $code
