#!/bin/bash
#SBATCH --signal=USR1@300
srun python train.py
