import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP

def main(net, loader):
    model = DDP(net)
    if dist.get_rank() == 0:
        for x, y in loader:
            print(model.module(x))
