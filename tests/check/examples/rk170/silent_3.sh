--- job.sh
#!/bin/bash
#SBATCH --gpus-per-node=1
python train.py --data /scratch/images --batchsize 256
--- train.py
import argparse
import torch

import timm

parser = argparse.ArgumentParser()
parser.add_argument("--data", required=True)
timm.add_options(parser)
args = parser.parse_args()
