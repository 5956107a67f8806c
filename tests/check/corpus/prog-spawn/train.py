"""mp.spawn starts a process for each GPU of one node."""

import os

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler
from torchvision import datasets, transforms


def run(rank, world_size, data):
    os.environ["MASTER_ADDR"] = "localhost"
    os.environ["MASTER_PORT"] = "29501"
    dist.init_process_group("nccl", rank=rank, world_size=world_size)
    torch.cuda.set_device(rank)
    torch.manual_seed(7)

    sampler = DistributedSampler(data, num_replicas=world_size, rank=rank)
    loader = DataLoader(data, batch_size=128, sampler=sampler, num_workers=3)
    model = DDP(torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(784, 10)).to(rank), device_ids=[rank])
    optimizer = torch.optim.Adam(model.parameters())
    for epoch in range(3):
        sampler.set_epoch(epoch)
        for images, labels in loader:
            loss = torch.nn.functional.cross_entropy(model(images.to(rank)), labels.to(rank))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    if rank == 0:
        torch.save(model.module.state_dict(), "digits.pt")
    dist.destroy_process_group()


if __name__ == "__main__":
    digits = datasets.MNIST("data", train=True, download=True, transform=transforms.ToTensor())
    count = torch.cuda.device_count()
    mp.spawn(run, args=(count, digits), nprocs=count)
