#!/bin/bash
#SBATCH --nodes=1 --gres=gpu:2
for device in 0 1; do
  CUDA_VISIBLE_DEVICES=$device python train.py &
done
echo "both are running"
