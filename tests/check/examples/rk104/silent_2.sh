#!/bin/bash
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=4
srun bash -c 'torchrun --nnodes=$SLURM_NTASKS --nproc_per_node=1 --node_rank=$SLURM_PROCID --master_addr=$H train.py'
