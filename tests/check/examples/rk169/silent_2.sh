#!/bin/bash
#SBATCH --output=logs/sweep.out
python sweep.py
