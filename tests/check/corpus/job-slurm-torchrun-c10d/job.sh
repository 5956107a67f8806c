#!/bin/bash -l
#SBATCH -J images -N 4
#SBATCH --ntasks-per-node 1
#SBATCH --gres=gpu:a100:4
#SBATCH -c 32 -t 1-00:00:00
#SBATCH --exclusive

set -euo pipefail
MASTER_ADDR=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)

srun torchrun \
    --nnodes "$SLURM_NNODES" \
    --nproc_per_node "$SLURM_GPUS_ON_NODE" \
    --rdzv_id "$SLURM_JOB_ID" \
    --rdzv_backend c10d \
    --rdzv_endpoint "$MASTER_ADDR:29500" \
    train.py --batch-size 32 2>&1 | tee "log-$SLURM_JOB_ID.txt"
