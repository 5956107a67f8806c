#!/bin/bash
#SBATCH --nodes=1
echo start | tee -a train.log
python train.py
