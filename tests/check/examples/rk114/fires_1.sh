#!/bin/bash
#SBATCH --nodes=2 --ntasks-per-node=8
export MASTER_ADDR=$(hostname -i)
srun ./start_ranks "$MASTER_ADDR"
