#!/bin/bash
#SBATCH --nodes=2 --ntasks-per-node=1 --gpus-per-node=4
export MASTER_ADDR=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)
srun bash -c 'torchrun --nnodes=2 --node_rank=\$SLURM_NODEID --nproc_per_node=4 \
  --master_addr=$MASTER_ADDR --master_port=29500 train.py'
