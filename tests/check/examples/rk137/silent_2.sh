#!/bin/bash
#SBATCH --nodes=2 --ntasks-per-node=1
srun ./eval_its_arguments.sh torchrun --nnodes=2 --node_rank='$SLURM_NODEID' train.py
