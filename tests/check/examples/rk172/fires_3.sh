#!/bin/bash
#SBATCH --nodes=1 --cpu-bind=cores
srun python train.py
