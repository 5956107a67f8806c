#!/bin/bash
#PBS -l select=1:ncpus=8
python train.py --tmie=1
