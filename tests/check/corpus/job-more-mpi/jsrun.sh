#!/bin/bash
#BSUB -nnodes 2
#BSUB -W 1:00
export MASTER_ADDR=$(hostname) MASTER_PORT=29500
jsrun -n 12 -a 1 -c 7 -g 1 python train.py
