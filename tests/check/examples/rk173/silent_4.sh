--- job.sh
#!/bin/bash
#SBATCH --nodes=1
#SBATCH --gpus-per-node=4
python train.py --write train8.py
srun python train8.py
--- train.py
import torch

print(torch.cuda.device_count())
