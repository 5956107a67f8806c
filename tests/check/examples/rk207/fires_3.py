import os
import torch
import torch.distributed as dist

def save(model, path):
    if int(os.environ["RANK"]) != 0:
        return
    torch.save(model.state_dict(), path)
    dist.barrier()
