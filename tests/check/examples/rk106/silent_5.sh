--- job.sh
#!/bin/bash
#SBATCH --nodes=1 --gres=gpu:2
torchrun train.py
--- train.py
import torch

first = torch.nn.Linear(8, 8).to("cuda:0")
second = torch.nn.Linear(8, 1).to("cuda:1")
