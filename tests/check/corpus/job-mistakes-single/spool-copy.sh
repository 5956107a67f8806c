#!/bin/bash
#SBATCH --nodes=1 --gres=gpu:1
cd "$(dirname "${BASH_SOURCE[0]}")"
python train.py
