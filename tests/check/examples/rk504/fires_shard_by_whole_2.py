import torch
import torch.distributed as dist
from torch.utils.data import DataLoader, DistributedSampler

@torch.no_grad()
def accuracy(model, loader):
    right = 0
    for x, y in loader:
        right += (model(x).argmax(1) == y).sum().item()
    return 100.0 * right / len(loader.dataset)

def main(dataset, model):
    dist.init_process_group("nccl")
    test_loader = DataLoader(dataset, 32, sampler=DistributedSampler(dataset, shuffle=False))
    print(accuracy(model, test_loader))

main([], None)
