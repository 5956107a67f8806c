#!/bin/tcsh
#SBATCH --nodes=1 --gres=gpu:1
export OMP_NUM_THREADS=8
python train.py
