#!/bin/bash
#SBATCH --nodes=1 --gres=gpu:4
#SBATCH --signal=B:USR1@600
#SBATCH --output=train.log
trap 'kill -TERM $child; wait $child; scontrol requeue "$SLURM_JOB_ID"' USR1
torchrun --standalone --nproc_per_node=4 train.py & child=$!
wait $child
