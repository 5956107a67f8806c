#!/bin/bash
#SBATCH --ntasks=8
#SBATCH --ntasks-per-node=4
#SBATCH --gpus-per-node=4
export MASTER_ADDR=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)
srun bash -c 'torchrun --nnodes=$SLURM_NTASKS --nproc_per_node=1 --node_rank=$SLURM_PROCID   --master_addr=$MASTER_ADDR --master_port=29500 train.py'
