#!/bin/bash
#SBATCH --nodes=1 --output=checkpoints/%j/out.txt
python train.py
