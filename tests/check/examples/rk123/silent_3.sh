#!/bin/bash
name=project
#BSUB -J project
#BSUB -n 1
python train.py
