import torch
import torch.distributed as dist
from torch.utils.data import DataLoader, DistributedSampler

def main(model, valid):
    dist.init_process_group("nccl")
    loader = DataLoader(valid, 32, sampler=DistributedSampler(valid, shuffle=False))
    total = torch.zeros(1)
    with torch.no_grad():
        for x, y in loader:
            total += torch.nn.functional.cross_entropy(model(x), y)
    dist.all_reduce(total)
    print("loss", total)

main(None, [])
