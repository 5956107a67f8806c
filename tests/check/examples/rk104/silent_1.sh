#!/bin/bash
#SBATCH --nodes=1
#SBATCH --ntasks=8
torchrun --nproc_per_node=8 train.py
