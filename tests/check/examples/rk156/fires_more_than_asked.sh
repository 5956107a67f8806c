#!/bin/bash
#PBS -l select=1:ncpus=8:ngpus=2
export CUDA_VISIBLE_DEVICES=0,1,2,3
cd "$PBS_O_WORKDIR"
python train.py
