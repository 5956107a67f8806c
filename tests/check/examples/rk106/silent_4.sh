#!/bin/bash
#SBATCH --gpus=8
torchrun --nproc_per_node=4 train.py
