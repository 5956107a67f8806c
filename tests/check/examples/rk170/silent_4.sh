--- job.sh
#!/bin/bash
#SBATCH --gpus-per-node=1
python train.py --data /scratch/images --batchsize 256
--- train.py
import argparse
import torch

parser = argparse.ArgumentParser()
for name in ("data", "batchsize"):
    parser.add_argument(f"--{name}")
args = parser.parse_args()
