#!/bin/bash
#SBATCH --nodes=1
#SBATCH --cpu-per-task 8
srun python train.py
