--- job.sh
#!/bin/bash
#SBATCH --nodes=1 --ntasks-per-node=4
#SBATCH --gpus-per-task=1
srun python train.py
--- train.py
import os
import torch

local_rank = int(os.environ["SLURM_LOCALID"])
torch.cuda.set_device(local_rank % torch.cuda.device_count())
