#!/bin/bash
#SBATCH --nodes=2 --ntasks-per-node=1 --gpus-per-node=4
if [ "$SLURM_NNODES" -gt 1 ]; then
  MASTER_ADDR=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)
  srun torchrun --nnodes="$SLURM_NNODES" --nproc_per_node=4 --rdzv_backend=c10d --rdzv_endpoint="$MASTER_ADDR:0" train.py
else
  torchrun --standalone --nproc_per_node=4 train.py
fi
