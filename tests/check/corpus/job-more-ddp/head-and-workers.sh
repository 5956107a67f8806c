#!/bin/bash
#SBATCH --nodes=2 --ntasks-per-node=1 --gpus-per-node=4
nodes=($(scontrol show hostnames "$SLURM_JOB_NODELIST"))
head=${nodes[0]}
for ((i = 1; i < SLURM_NNODES; i++)); do
  srun --nodes=1 --ntasks=1 --nodelist="${nodes[$i]}"     torchrun --nnodes=2 --node_rank="$i" --nproc_per_node=4 --master_addr="$head" --master_port=29500 train.py &
done
torchrun --nnodes=2 --node_rank=0 --nproc_per_node=4 --master_addr="$head" --master_port=29500 train.py
wait
