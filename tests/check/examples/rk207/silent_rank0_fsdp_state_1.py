import torch
import torch.distributed as dist
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP

def main(net):
    model = FSDP(net)
    state = model.state_dict()
    if dist.get_rank() == 0:
        torch.save(state, "model.pt")
