#!/bin/bash
#SBATCH --nodes=1
#SBATCH --gres=gpu:1
#SBATCH --time=1:00:00
python small.py

#SBATCH --nodes=1
#SBATCH --gres=gpu:4
#SBATCH --time=9:00:00
torchrun --standalone --nproc_per_node=4 large.py
