--- job.sh
#!/bin/bash
#SBATCH --nodes=1
#SBATCH --gpus-per-node=4
sed s/4/8/ train.py > train8.py
srun python train8.py
--- train.py
import torch

print(torch.cuda.device_count())
