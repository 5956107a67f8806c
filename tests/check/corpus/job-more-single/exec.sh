#!/bin/bash
#SBATCH --gres=gpu:1 --ntasks=1
#SBATCH --signal=B:USR1@120
source "$HOME/.bashrc"
exec python train.py
