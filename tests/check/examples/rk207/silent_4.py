import torch.distributed as dist

def load(path):
    rank = dist.get_rank()
    if rank != 0:
        dist.barrier()
    data = read(path)
    if rank == 0:
        dist.barrier()
    return data
