#!/bin/bash
#SBATCH --nodes=1 --ntasks=1
srun torchrun --nnodes=1 --nproc_per_node=4 --node_rank=$SLURM_NODEID train.py
