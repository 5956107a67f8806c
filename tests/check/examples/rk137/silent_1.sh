#!/bin/bash
#SBATCH --nodes=2 --ntasks-per-node=1
LAUNCHER="torchrun --nnodes=2 --node_rank=\$SLURM_NODEID --master_addr=$MASTER_ADDR"
srun bash -c "$LAUNCHER train.py"
