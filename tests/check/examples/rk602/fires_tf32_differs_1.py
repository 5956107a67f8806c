import torch
import torch.distributed as dist

dist.init_process_group("nccl")
if dist.get_world_size() > 1:
    torch.backends.cuda.matmul.allow_tf32 = True
