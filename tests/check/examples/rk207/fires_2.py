import torch
import torch.distributed as dist

def report(loss):
    if dist.get_rank() == 0:
        dist.all_reduce(loss)
        print(loss.item())
