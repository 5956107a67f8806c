#!/bin/bash
#PBS -l select=4:ncpus=8:ngpus=1
#PBS -l place=pack
export CUDA_VISIBLE_DEVICES=0,1,2,3
cd "$PBS_O_WORKDIR"
torchrun --standalone --nproc_per_node=4 train.py
