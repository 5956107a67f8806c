#!/bin/bash
#SBATCH --requeue --open-mode=append
srun python train.py
