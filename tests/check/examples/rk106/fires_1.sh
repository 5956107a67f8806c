#!/bin/bash
#SBATCH --nodes=2 --ntasks-per-node=1 --gpus-per-node=a100:4
NPROC=2
srun torchrun --nnodes=2 --nproc_per_node=$NPROC --rdzv_backend=c10d --rdzv_endpoint=$HEAD:29500 train.py
