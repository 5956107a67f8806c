#!/bin/bash
#SBATCH --job-name=scaling
#SBATCH --nodes=1
#SBATCH --ntasks=1
#SBATCH --gpus=4
#SBATCH --cpus-per-task=16
#SBATCH --time=00:30:00

source "$HOME"/venvs/torch/bin/activate
torchrun --standalone --nproc_per_node=1 train.py --precision bf16
torchrun --standalone --nproc_per_node=2 train.py --precision bf16
torchrun --standalone --nproc_per_node=4 train.py --precision bf16
