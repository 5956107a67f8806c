#!/bin/bash
#SBATCH --nodes=2 --gpus-per-node=4
MASTER_ADDR=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)
for host in $(scontrol show hostnames "$SLURM_JOB_NODELIST"); do
  ssh "$host" cd "$PWD"; torchrun --nnodes=2 --rdzv_backend=c10d --rdzv_endpoint=$MASTER_ADDR:29500 train.py &
done
wait
