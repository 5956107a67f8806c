import torch
import torch.distributed as dist
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP

def main(net):
    model = FSDP(net)
    if dist.get_rank() == 0:
        torch.save(model.state_dict(), "model.pt")
