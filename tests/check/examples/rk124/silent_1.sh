#!/bin/bash
#PBS -l select=2:ncpus=8:ngpus=1
cd "$PBS_O_WORKDIR"
head=$(head -n 1 "$PBS_NODEFILE")
for host in $(sort -u "$PBS_NODEFILE"); do
  ssh "$host" "cd $PBS_O_WORKDIR && torchrun --nnodes=2 --rdzv_backend=c10d --rdzv_endpoint=$head:29500 train.py" &
done
wait
