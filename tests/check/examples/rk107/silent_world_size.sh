#!/bin/bash
#SBATCH --nodes=2 --ntasks-per-node=1 --gpus-per-node=4
export WORLD_SIZE=8
srun torchrun --nnodes=$WORLD_SIZE --nproc_per_node=4 --rdzv_backend=c10d --rdzv_endpoint=$HEAD:29500 train.py
