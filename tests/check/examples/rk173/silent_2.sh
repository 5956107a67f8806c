--- job.sh
#!/bin/bash
#SBATCH --nodes=1
#SBATCH --gpus-per-node=4
cp train.py train_1.py
srun python train_1.py
--- train.py
import torch

print(torch.cuda.device_count())
