import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP

def main(net, loader):
    model = DDP(net)
    for x, y in loader:
        out = model(x)
        if dist.get_rank() == 0:
            print(out)
