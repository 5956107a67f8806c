import os
import torch.distributed as dist

dist.init_process_group("nccl")
if int(os.environ["SLURM_PROCID"]) % 2 == 0:
    dist.barrier()
dist.destroy_process_group()
