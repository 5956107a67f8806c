"""Collectives that one rank calls alone."""

import os

import torch
import torch.distributed as dist
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
from torch.utils.data import DataLoader, Subset
from torchvision import datasets, transforms


def mean_over_ranks(value):
    dist.all_reduce(value)
    return value / dist.get_world_size()


def main():
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    dist.init_process_group("nccl")
    rank, world = dist.get_rank(), dist.get_world_size()
    data = datasets.ImageFolder("data/train", transforms.ToTensor())
    loader = DataLoader(Subset(data, range(rank, len(data), world)), 32, num_workers=8)
    model = FSDP(torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(3072, 10)).cuda())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for images, labels in loader:
        loss = torch.nn.functional.cross_entropy(model(images.cuda()), labels.cuda())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if rank == 0:
            print(mean_over_ranks(loss.detach()).item())
    if rank == 0:
        torch.save(model.state_dict(), "model.pt")
    if rank == 0:
        for images, labels in loader:
            print(model(images.cuda()).argmax(1))
            break
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
