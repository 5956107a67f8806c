#!/bin/bash
#SBATCH --nodes=2
LAUNCHER="torchrun --nnodes=$SLURM_NNODES --nproc_per_node=4 --rdzv_backend=c10d --rdzv_endpoint=$HOSTNAME:29500"
CMD="train.py --epochs 3"
srun bash -c "$LAUNCHER $CMD"
