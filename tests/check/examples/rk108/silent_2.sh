--- job.sh
#!/bin/bash
#SBATCH --nodes=1
python train.py
--- train.py
import torch

device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
