#!/bin/bash
#SBATCH --nodes=1 --gpus-per-node=4 --cpus-per-task=32
#SBATCH --signal=B:USR1@120
# env.sh sets the trap
source "$SLURM_SUBMIT_DIR/env.sh"
torchrun --standalone --nproc_per_node=4 train.py &
wait
