#!/bin/bash
#SBATCH --nodes=1 --gpus-per-node=4
#SBATCH --ntasks-pernode=4
srun python train.py
