#!/bin/bash
#PBS -l select=2:ncpus=8:ngpus=1:mpiprocs=1
PORT=29500
pbsdsh -- bash -c 'PORT=29500; cd /home/me/p && torchrun --nnodes=2 --rdzv_backend=c10d --rdzv_id=$PORT train.py'
