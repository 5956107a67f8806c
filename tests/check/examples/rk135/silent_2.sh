#!/bin/bash
# one GPU
#PBS -l select=1:ncpus=8:ngpus=1
cd "$PBS_O_WORKDIR"
python train.py
