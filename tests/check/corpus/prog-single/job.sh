#!/bin/bash
#SBATCH --job-name=single
#SBATCH --nodes=1
#SBATCH --ntasks=1
#SBATCH --gpus=1
#SBATCH --cpus-per-task=16
#SBATCH --time=01:00:00

source "$HOME"/venvs/torch/bin/activate
python train.py
