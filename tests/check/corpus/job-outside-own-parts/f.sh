#!/bin/bash
#SBATCH --nodes=1
#SBATCH --gpus=2
torchrun --standalone --nproc-per-node=2 main.py
