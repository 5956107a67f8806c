#!/bin/bash
#SBATCH --nodes=2 --ntasks-per-node=1 --gpus-per-node=4
export MASTER_ADDR=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)
srun bash -c 'torchrun --nnodes=2 --nproc_per_node=4 --rdzv_id=$RANDOM --rdzv_backend=c10d \
  --rdzv_endpoint=$MASTER_ADDR:29500 train.py'
