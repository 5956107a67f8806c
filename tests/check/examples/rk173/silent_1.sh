--- job.sh
#!/bin/bash
#SBATCH --nodes=1
#SBATCH --gpus-per-node=4
cd /scratch/me/run
srun python trian.py
--- train.py
import torch

print(torch.cuda.device_count())
