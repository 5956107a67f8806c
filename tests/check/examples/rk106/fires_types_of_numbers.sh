--- job.sh
#!/bin/bash
#SBATCH --nodes=1 --gres=gpu:4
torchrun --standalone --nproc_per_node=2 train.py
--- train.py
import os
import torch

rank = int(os.environ["LOCAL_RANK"])
model = torch.nn.Linear(8, 8).to(rank)
x = torch.zeros(8).to(torch.float16).to(rank)
y = x.to(torch.float32)
