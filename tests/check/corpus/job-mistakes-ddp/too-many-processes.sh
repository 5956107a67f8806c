#!/bin/bash
#SBATCH --nodes=1
#SBATCH --gres=gpu:2
#SBATCH --time=1:00:00
torchrun --standalone --nproc_per_node=4 train.py
