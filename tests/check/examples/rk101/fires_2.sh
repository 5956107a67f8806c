#!/bin/bash
#SBATCH --nodes=2
#SBATCH --gpus-per-node=8
deepspeed --num_gpus 8 train.py --deepspeed_config zero2.json
