#!/bin/bash
#SBATCH --nodes=1 --ntasks-per-node=1 --cpus-per-task=8 --gres=gpu:4
torchrun --standalone --nproc_per_node=4 train.py
