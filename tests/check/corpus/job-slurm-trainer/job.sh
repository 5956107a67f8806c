#!/bin/bash
#SBATCH --partition=gpu --nodes=1 --gpus-per-node=2 --cpus-per-task=16 --time=2:00:00
#SBATCH --mail-type=END,FAIL

export HF_HOME=$SCRATCH/huggingface TOKENIZERS_PARALLELISM=false
PORT=$(comm -23 <(seq 20000 30000 | sort) <(ss -tan | awk '{print $4}' | grep -o '[0-9]*$' | sort -u) | shuf -n 1)
torchrun --nproc_per_node=2 --master_port="$PORT" train.py
