#!/bin/bash
#PBS -l select=1:ncpus=16:ngpus=4
cd "$PBS_O_WORKDIR"
CUDA_VISIBLE_DEVICES=0,1 torchrun --standalone --nproc_per_node=2 train.py
