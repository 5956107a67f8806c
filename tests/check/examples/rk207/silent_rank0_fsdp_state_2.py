import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP

def main(net):
    model = DDP(net)
    if dist.get_rank() == 0:
        torch.save(model.state_dict(), "model.pt")
