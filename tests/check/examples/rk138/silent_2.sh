#!/bin/bash
#SBATCH --nodes=2
NODE_NAMES=$(scontrol show hostnames)
if [ -n "$NODE_NAME" ]; then echo "$NODE_NAME"; fi
srun python train.py
