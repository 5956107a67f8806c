#!/bin/bash
#SBATCH --signal=B:USR1@300
trap '' USR1
exec python train.py
