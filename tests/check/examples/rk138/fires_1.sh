#!/bin/bash
#SBATCH --nodes=1 --ntasks-per-node=4
srun bash -c 'LOCAL_RANK=$SLURM_LOCAL_ID python train.py'
