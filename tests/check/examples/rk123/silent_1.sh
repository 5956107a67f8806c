#!/bin/bash
#SBATCH --nodes=1
python train.py
##SBATCH --gres=gpu:1
# SBATCH --gres=gpu:1
