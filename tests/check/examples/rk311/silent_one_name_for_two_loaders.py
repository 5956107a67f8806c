import torch.distributed as dist
from torch.utils.data import DataLoader, DistributedSampler
from tqdm import tqdm


def main(dataset, test, model, optimizer):
    dist.init_process_group("nccl")
    loader = DataLoader(dataset, 32, sampler=DistributedSampler(dataset))
    test_loader = DataLoader(test, 32, sampler=DistributedSampler(test, shuffle=False))
    for epoch in range(10):
        bar = tqdm(loader)
        for x, y in bar:
            model(x).sum().backward()
            optimizer.step()
        bar = tqdm(test_loader)
        for x, y in bar:
            model(x)
