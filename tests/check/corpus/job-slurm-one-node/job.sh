#!/bin/bash
#SBATCH --nodes=1
#SBATCH --ntasks=1
#SBATCH --cpus-per-task=16     # four per process
#SBATCH --gpus=4
#SBATCH --mem=120G
#SBATCH --time=02:00:00

source ~/miniconda3/etc/profile.d/conda.sh
conda activate vision
torchrun --standalone --nproc_per_node=4 train.py
