#!/bin/bash
#SBATCH --nodes=1 # one node
srun python train.py
