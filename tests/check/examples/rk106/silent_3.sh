#!/bin/bash
#SBATCH --nodes=1 --gres=gpu:4
CUDA_VISIBLE_DEVICES=3 vllm serve model &
torchrun --standalone --nproc_per_node=3 train.py
