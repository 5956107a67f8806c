import torch
import torch.distributed as dist

GPUS = {0: 0, 1: 1, 2: 0, 3: 1}
dist.init_process_group("nccl")
torch.cuda.set_device(GPUS[dist.get_rank()])
