#!/bin/bash
#SBATCH --nodes=1 --gpus-per-node=4
python -m torch.distributed.launch --nnodes=1 --nproc_pe#r_node=4 train.py
