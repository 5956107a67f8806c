#!/bin/bash
#SBATCH --nodes=2 --ntasks-per-node=4 --gpus-per-node=4 --cpus-per-task=8
export MASTER_ADDR=localhost
export MASTER_PORT=$((10000 + SLURM_JOB_ID % 20000))
srun python train.py
