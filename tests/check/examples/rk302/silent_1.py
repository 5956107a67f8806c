import torch.distributed as dist
from torch.utils.data import DataLoader, DistributedSampler

def main(dataset, model, optimizer):
    dist.init_process_group("nccl")
    sampler = DistributedSampler(dataset)
    loader = DataLoader(dataset, batch_size=32, sampler=sampler)
    for epoch in range(10):
        loader.sampler.set_epoch(epoch)
        for x, y in loader:
            model(x).sum().backward()
            optimizer.step()

main(None, None, None)
