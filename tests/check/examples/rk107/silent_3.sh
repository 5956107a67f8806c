#!/bin/bash
#SBATCH --nodes=4 --ntasks-per-node=1
srun torchrun --nnodes=1:4 --nproc_per_node=4 --rdzv_backend=c10d --rdzv_endpoint=$HEAD:29500 train.py
