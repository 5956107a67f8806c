#!/bin/bash
#PBS -l nodes=1:ppn=8
#PBS -d .
python train.py
