#!/bin/bash
#SBATCH --nodes=2 --ntasks-per-node=1 --gpus-per-node=4 --exclusive
nodes=($(scontrol show hostnames "$SLURM_JOB_NODELIST"))
address=${nodes[0]}:6379
srun --nodes=1 --ntasks=1 -w "${nodes[0]}" ray start --head --port=6379 --block &
sleep 20
srun --nodes=1 --ntasks=1 -w "${nodes[1]}" ray start --address "$address" --block &
sleep 20
RAY_ADDRESS=$address python train.py
