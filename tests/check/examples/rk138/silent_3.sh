#!/bin/bash
#SBATCH --nodes=1
export DATA_SET="$data_set"
echo "usage: sbatch $0 <config-file>"
CONFIG_FILE=$1
srun python train.py "$DATA_SET"
