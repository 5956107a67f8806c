#!/bin/bash
#SBATCH --nodes=2 --ntasks-per-node=2 --gpus-per-task=2
export MASTER_ADDR=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1) MASTER_PORT=12345
srun python pipeline_of_two_gpus.py
