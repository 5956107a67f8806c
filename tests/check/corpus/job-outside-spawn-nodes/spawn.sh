#!/bin/bash
#SBATCH -N 2
#SBATCH --ntasks-per-node=1
#SBATCH --gres=gpu:4
#SBATCH -c 32
export MASTER_ADDR=$(scontrol show hostname $SLURM_JOB_NODELIST | head -1)
export MASTER_PORT=$((SLURM_JOB_ID % 10000 + 20000))
srun python main.py --nodes $SLURM_NNODES
