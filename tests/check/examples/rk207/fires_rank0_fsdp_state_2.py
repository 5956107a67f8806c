import torch
import torch.distributed as dist
from torch.distributed.fsdp import fully_shard

def main(model):
    rank = dist.get_rank()
    fully_shard(model)
    if rank == 0:
        state = model.state_dict()
        torch.save(state, "model.pt")
