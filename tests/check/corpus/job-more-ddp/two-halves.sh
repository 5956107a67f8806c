#!/bin/bash
#SBATCH --nodes=1 --gpus-per-node=4 --cpus-per-task=32
CUDA_VISIBLE_DEVICES=0,1 torchrun --nproc_per_node=2 --master_port=$((20000 + SLURM_JOB_ID % 5000)) train.py --epochs 5 &
CUDA_VISIBLE_DEVICES=2,3 torchrun --nproc_per_node=2 --master_port=$((25000 + SLURM_JOB_ID % 5000)) train.py --epochs 9 &
wait
