#!/bin/bash
#SBATCH --array=5
#SBATCH --output=logs/sweep.out
python sweep.py
