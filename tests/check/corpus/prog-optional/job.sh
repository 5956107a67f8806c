#!/bin/bash
#SBATCH --job-name=optional
#SBATCH --nodes=1
#SBATCH --ntasks=1
#SBATCH --gpus=4
#SBATCH --cpus-per-task=32
#SBATCH --time=02:00:00

source "$HOME"/venvs/torch/bin/activate
export OMP_NUM_THREADS=8
torchrun --standalone --nproc_per_node=4 train.py
