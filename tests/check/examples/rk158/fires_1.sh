#!/bin/bash
#PBS -l select=2:ncpus=8:ngpus=1:mpiprocs=1
cd "$PBS_O_WORKDIR"
head=$(hostname)
pbsdsh -- torchrun --nnodes=2 --rdzv_backend=c10d --rdzv_endpoint=$head:29500 train.py
