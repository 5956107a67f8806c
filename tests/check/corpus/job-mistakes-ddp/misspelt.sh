#!/bin/bash
#SBATCH --nodes=1
#SBSTCH --gres=gpu:4
torchrun --standalone --nproc_per_node=4 train.py
