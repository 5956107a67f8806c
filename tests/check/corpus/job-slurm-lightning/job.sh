#!/bin/bash
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=4
#SBATCH --gpus-per-node=4
#SBATCH --cpus-per-task=8
#SBATCH --signal=SIGUSR1@90
#SBATCH --time=01:00:00

export NCCL_DEBUG=WARN
srun python train.py
