#!/bin/bash
#SBATCH --nodes=1 --gres=gpu:4 --open-mode=append
#SBATCH --signal=B:USR1@600
stop() { touch STOP; scontrol requeue "$SLURM_JOB_ID"; }
trap stop USR1
srun torchrun --standalone --nproc_per_node=4 train.py
