#!/bin/bash
#SBATCH --nodes=1
#SBATCH --ntasks=1
#SBATCH --gres=gpu:4
export MASTER_ADDR=localhost MASTER_PORT=12345
srun python train.py  # it spawns its own processes
