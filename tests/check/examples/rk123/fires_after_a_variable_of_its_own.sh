#!/bin/bash
SETUP="module load cuda"
$SETUP
#SBATCH --nodes=2
srun python train.py
