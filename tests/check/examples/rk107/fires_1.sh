#!/bin/bash
#SBATCH --nodes=2 --ntasks-per-node=1 --gres=gpu:4
NNODES=3
srun torchrun --nproc_per_node=4 --rdzv_backend=c10d --rdzv_endpoint=$HEAD:29500 train.py
srun torchrun --nnodes=$NNODES --nproc_per_node=4 --rdzv_backend=c10d --rdzv_endpoint=$HEAD:29500 train.py
