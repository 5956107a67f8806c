#!/bin/bash
#SBATCH --nodes=4
srun torchrun --nnodes 4 \
    --nproc_per_node 1 \  # one GPU each
    --rdzv_id $SLURM_JOB_ID --rdzv_backend c10d train.py
