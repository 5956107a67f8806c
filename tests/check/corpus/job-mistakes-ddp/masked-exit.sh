#!/bin/bash
#SBATCH --nodes=1 --ntasks-per-node=1 --cpus-per-task=16 --gres=gpu:4
torchrun --standalone --nproc_per_node=4 train.py 2>&1 | tee "train-$SLURM_JOB_ID.log"
