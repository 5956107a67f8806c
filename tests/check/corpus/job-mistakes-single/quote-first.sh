#!/bin/bash
"
#SBATCH --nodes=1
#SBATCH --gres=gpu:1
python train.py
