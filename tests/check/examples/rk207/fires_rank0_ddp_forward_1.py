import torch
import torch.distributed as dist
import torchvision
from torch.nn.parallel import DistributedDataParallel as DDP

def main(loader):
    rank = dist.get_rank()
    model = DDP(torchvision.models.resnet18().cuda())
    if rank == 0:
        with torch.no_grad():
            for x, y in loader:
                print(model(x))
