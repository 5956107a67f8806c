"""The same order in every epoch, two answers about the order, and a metric of one rank."""

import os

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler
from torchvision import datasets, transforms


def accuracy(model, loader):
    model.eval()
    right = 0
    with torch.no_grad():
        for images, labels in loader:
            right += (model(images.cuda()).argmax(1) == labels.cuda()).sum().item()
    return right / len(loader.dataset)


def main():
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    dist.init_process_group("nccl")
    train = datasets.ImageFolder("data/train", transforms.ToTensor())
    test = datasets.ImageFolder("data/test", transforms.ToTensor())
    extra = datasets.ImageFolder("data/extra", transforms.ToTensor())
    train_loader = DataLoader(train, 32, sampler=DistributedSampler(train), num_workers=8)
    test_loader = DataLoader(test, 32, sampler=DistributedSampler(test, shuffle=False), num_workers=8)
    extra_loader = DataLoader(extra, 32, shuffle=True, sampler=DistributedSampler(extra), num_workers=8)
    model = DDP(torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(3072, 10)).cuda())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for epoch in range(10):
        model.train()
        for images, labels in train_loader:
            loss = torch.nn.functional.cross_entropy(model(images.cuda()), labels.cuda())
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        result = accuracy(model, test_loader)
        if dist.get_rank() == 0:
            print(epoch, result, len(extra_loader))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
