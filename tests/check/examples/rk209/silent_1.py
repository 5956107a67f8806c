import torch
import torch.distributed as dist

def step(loss, metrics):
    if loss is not None:
        dist.reduce(loss, dst=0)
    dist.reduce(loss, 0)
    if loss is not None:
        metrics["loss"] = loss.item()
