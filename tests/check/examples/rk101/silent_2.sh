#!/bin/bash
#SBATCH --nodes=2
nodes=($(scontrol show hostnames "$SLURM_JOB_NODELIST"))
ssh "${nodes[1]}" "cd $PWD && torchrun --nnodes=2 --node_rank=1 --master_addr=${nodes[0]} train.py" &
torchrun --nnodes=2 --node_rank=0 --master_addr=${nodes[0]} train.py
wait
