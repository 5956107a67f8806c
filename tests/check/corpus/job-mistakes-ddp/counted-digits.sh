#!/bin/bash
#SBATCH --nodes=1 --gres=gpu:4
GPUS=$(echo "$SLURM_JOB_GPUS" | tr -d , | tr -d '\n' | wc -c)
torchrun --standalone --nproc_per_node="$GPUS" train.py
