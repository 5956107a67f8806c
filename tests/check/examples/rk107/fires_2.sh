#!/bin/bash
#SBATCH --nodes=4 --ntasks=1 --gres=gpu:4
srun torchrun --nnodes=$SLURM_NNODES --nproc_per_node=4 --rdzv_backend=c10d --rdzv_endpoint=$HEAD:29500 train.py
