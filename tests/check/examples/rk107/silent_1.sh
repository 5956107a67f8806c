#!/bin/bash
#SBATCH --nodes=1 --ntasks-per-node=1
srun torchrun --nproc_per_node=4 train.py
