#!/bin/bash
#SBATCH --nodes=1 --ntasks-per-node=8 --gpus-per-node=8
export MASTER_ADDR=$(hostname) MASTER_PORT=12802
python $HERE/deepy.py $HERE/train.py -d configs small.yml
