#!/bin/bash
#SBATCH --nodes=1 --gres=gpu:4
#SBATCH --cpus-per-task=72.
torchrun --standalone --nproc_per_node=4 train.py
