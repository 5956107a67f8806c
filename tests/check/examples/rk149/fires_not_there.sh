#!/bin/bash
#SBATCH --nodes=1 --output=slurm_outputs/%x_%A.out
python train.py
