#!/bin/bash
#SBATCH --job-name=split
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=1
#SBATCH --gpus-per-node=4
#SBATCH --cpus-per-task=32
#SBATCH --time=04:00:00

source "$HOME"/venvs/torch/bin/activate
export MASTER_ADDR=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)
export MASTER_PORT=$((10000 + SLURM_JOB_ID % 20000))
export OMP_NUM_THREADS=8

srun --cpus-per-task="$SLURM_CPUS_PER_TASK" bash -c 'torchrun \
  --nnodes=$SLURM_NNODES --node_rank=$SLURM_NODEID --nproc_per_node=4 \
  --master_addr=$MASTER_ADDR --master_port=$MASTER_PORT \
  train.py'
