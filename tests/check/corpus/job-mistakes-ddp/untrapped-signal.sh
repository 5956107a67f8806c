#!/bin/bash
#SBATCH --nodes=1 --gres=gpu:4
#SBATCH --signal=B:USR1@600
torchrun --standalone --nproc_per_node=4 train.py
