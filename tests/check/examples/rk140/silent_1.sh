#!/bin/bash
#SBATCH --nodes=1 --gres=gpu:1
python train.py & pid=$!
while kill -0 $pid; do sleep 10; done
