--- job.sh
#!/bin/bash
#SBATCH --nodes=1
#SBATCH --gpus-per-node=4
if [ -f train2.py ]; then srun python train2.py; fi
--- train.py
import torch

print(torch.cuda.device_count())
