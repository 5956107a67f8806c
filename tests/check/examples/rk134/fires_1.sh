#!/bin/bash
#SBATCH--nodes=2
#SBACTH --time=1:00:00
srun python train.py
