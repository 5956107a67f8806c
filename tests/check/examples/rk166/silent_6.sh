--- job.sh
#!/bin/bash
#SBATCH --nodes=2 --ntasks-per-node=4 --gpus-per-node=4
srun python train.py
--- idr_torch.py
import os
import hostlist

rank = int(os.environ["SLURM_PROCID"])
local_rank = int(os.environ["SLURM_LOCALID"])
size = int(os.environ["SLURM_NTASKS"])
os.environ["MASTER_ADDR"] = hostlist.expand_hostlist(os.environ["SLURM_JOB_NODELIST"])[0]
os.environ["MASTER_PORT"] = "12345"
--- train.py
import idr_torch
import torch
import torch.distributed as dist

torch.cuda.set_device(idr_torch.local_rank)
dist.init_process_group("nccl", rank=idr_torch.rank, world_size=idr_torch.size)
dist.destroy_process_group()
