--- job.sh
#!/bin/bash
#SBATCH --nodes=1 --ntasks-per-node=4
#SBATCH --gpus-per-task=1
srun --gpu-bind=none python train.py
--- train.py
import os
import torch

torch.cuda.set_device(int(os.environ["SLURM_LOCALID"]))
