#!/bin/bash
#SBATCH --nodes=2 --ntasks-per-node=4 --gpus-per-node=4 --cpus-per-task=8
export NCCL_SOCKET_IFNAME=^lo,docker0 GLOO_SOCKET_IFNAME=^lo,docker0
export MASTER_ADDR=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1) MASTER_PORT=$((10000 + SLURM_JOB_ID % 20000))
srun python train.py
