#!/bin/bash
#SBATCH --nodes=1 --output=/scratch/logs/%x_%A.out
python train.py
