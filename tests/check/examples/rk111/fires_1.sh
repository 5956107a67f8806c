#!/bin/bash
#SBATCH --nodes=2 --ntasks-per-node=1
export MASTER_ADDR="127.0.0.1"
srun bash -c 'torchrun --nnodes=2 --rdzv_backend=c10d --rdzv_endpoint=$MASTER_ADDR:29500 train.py'
srun bash -c 'torchrun --nnodes=2 --rdzv_backend=c10d --rdzv_endpoint=$(hostname):29500 train.py'
srun bash -c 'export MASTER_ADDR=$(hostname); python train.py'
