--- job.sh
#!/bin/bash
#SBATCH --nodes=2 --ntasks-per-node=4 --gpus-per-node=4
source site_settings.sh
srun python train.py
--- train.py
import torch.distributed as dist

dist.init_process_group("gloo")
dist.destroy_process_group()
