--- job.sh
#!/bin/bash
#SBATCH --nodes=1
#SBATCH --gpus-per-node=4
apptainer exec image.sif python train2.py
--- train.py
import torch

print(torch.cuda.device_count())
