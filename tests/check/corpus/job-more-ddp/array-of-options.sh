#!/bin/bash
#SBATCH --nodes=2 --ntasks-per-node=1 --gpus-per-node=4 --cpus-per-task=32
MASTER_ADDR=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)
options=(
  --nnodes="$SLURM_NNODES"
  --nproc_per_node=4
  --rdzv_backend=c10d
  --rdzv_endpoint="$MASTER_ADDR:$((10000 + SLURM_JOB_ID % 20000))"
)
srun torchrun "${options[@]}" train.py "$@"
