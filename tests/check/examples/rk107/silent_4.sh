#!/bin/bash
#SBATCH --nodes=4 --ntasks-per-node=1
srun --nodes=2 --ntasks=2 torchrun --nnodes=2 --nproc_per_node=4 --rdzv_backend=c10d --rdzv_endpoint=$HEAD:1 train.py
