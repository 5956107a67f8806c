#!/bin/bash
#SBATCH --nodes=1
#SBATCH --ntasks-per-node=8
#SBATCH --gres=gpu:8
srun python -m torch.distributed.launch --nproc_per_node=8 train.py
