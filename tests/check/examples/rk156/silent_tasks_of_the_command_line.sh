#!/bin/bash
# sbatch --ntasks=4 job.sh
#SBATCH --gpus-per-task=1 --cpus-per-task=8
export CUDA_VISIBLE_DEVICES=3,2,1,0
srun python train.py
