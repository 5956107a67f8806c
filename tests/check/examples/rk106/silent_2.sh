#!/bin/bash
#SBATCH --gpus-per-node=4
torchrun --nproc_per_node=gpu train.py
