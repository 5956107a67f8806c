#!/bin/bash
#SBATCH --nodes=1 --ntasks=1 --cpus-per-task=8
#SBATCH --gres=gpu:2
#SBATCH --array=0-4
#SBATCH --output=seed-%A_%a.log

for device in 0 1; do
  CUDA_VISIBLE_DEVICES=$device python train.py > "run-$SLURM_ARRAY_TASK_ID-$device.log" &
done
wait
