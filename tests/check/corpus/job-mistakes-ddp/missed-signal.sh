#!/bin/bash
#SBATCH --nodes=1 --gres=gpu:4
#SBATCH --signal=USR1@600
trap 'touch STOP' USR1
torchrun --standalone --nproc_per_node=4 train.py &
wait
