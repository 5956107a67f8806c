--- job.sh
#!/bin/bash
#SBATCH --nodes=2 --ntasks-per-node=4 --gpus-per-node=4
srun python train.py
--- train.py
import idr_torch
import torch
import torch.distributed as dist

dist.init_process_group("nccl", init_method="env://", world_size=idr_torch.size, rank=idr_torch.rank)
torch.cuda.set_device(idr_torch.local_rank)
dist.destroy_process_group()
