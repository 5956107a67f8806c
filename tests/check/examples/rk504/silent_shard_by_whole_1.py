import torch
import torch.distributed as dist
from torch.utils.data import DataLoader, DistributedSampler

def main(dataset, model):
    dist.init_process_group("nccl")
    loader = DataLoader(dataset, 32, sampler=DistributedSampler(dataset))
    right = torch.zeros(1)
    for x, y in loader:
        right += (model(x).argmax(1) == y).sum()
    dist.all_reduce(right)
    print(right / len(loader.dataset))

main([], None)
