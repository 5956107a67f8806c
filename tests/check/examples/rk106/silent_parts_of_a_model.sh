--- job.sh
#!/bin/bash
#SBATCH --nodes=2 --ntasks-per-node=1
#SBATCH --gres=gpu:4
srun torchrun --nnodes=$SLURM_NNODES --nproc_per_node=2 --rdzv_id=$SLURM_JOB_ID --rdzv_backend=c10d \
    --rdzv_endpoint=$(hostname):29500 train.py
--- train.py
import os
import torch

rank = int(os.environ["LOCAL_RANK"])
devices = [2 * rank, 2 * rank + 1]
first = torch.nn.Linear(8, 8).to(devices[0])
second = torch.nn.Linear(8, 1).to(devices[1])
