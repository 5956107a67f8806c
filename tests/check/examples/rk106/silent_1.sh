#!/bin/bash
#SBATCH --nodes=1
#SBATCH --gres=gpu:4
CUDA_VISIBLE_DEVICES=0,1 torchrun --nproc_per_node=2 --master_port=29500 train.py --seed 1 &
CUDA_VISIBLE_DEVICES=2,3 torchrun --nproc_per_node=2 --master_port=29501 train.py --seed 2 &
wait
