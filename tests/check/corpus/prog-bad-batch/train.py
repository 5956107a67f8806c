"""The batch of all ranks on each rank, in the same order in every epoch."""

import argparse
import os

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler
from torchvision import datasets, transforms


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--global-batch-size", type=int, default=1024)
    args = parser.parse_args()
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    dist.init_process_group("nccl")
    data = datasets.ImageFolder("data/train", transforms.ToTensor())
    sampler = DistributedSampler(data, shuffle=False)
    loader = DataLoader(data, batch_size=args.global_batch_size, sampler=sampler, num_workers=8)
    model = DDP(torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(3072, 10)).cuda())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for epoch in range(10):
        total = 0.0
        for images, labels in loader:
            loss = torch.nn.functional.cross_entropy(model(images.cuda()), labels.cuda())
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += loss.item() * len(labels)
        print(epoch, total / len(loader.dataset))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
