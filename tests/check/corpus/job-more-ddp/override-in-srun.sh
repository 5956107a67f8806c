#!/bin/bash
#SBATCH -N 2 -n 8
#SBATCH --gpus-per-node=4
MASTER_ADDR=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)
srun -N 2 -n 2 --ntasks-per-node=1 --cpus-per-task=32 torchrun --nnodes=2 --nproc_per_node=4   --rdzv_backend=c10d --rdzv_endpoint="$MASTER_ADDR:29500" train.py
