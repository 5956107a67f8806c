#!/bin/bash
#SBATCH --nodes=2
OPTIONS=(
    --nnodes=2
    --nproc_per_node=4
)
srun torchrun "${OPTIONS[@]}" train.py
