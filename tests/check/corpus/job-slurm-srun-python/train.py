"""A small convolutional network on images in folders, one task of SLURM per GPU."""

import argparse
import os
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler
from torchvision import datasets, transforms


def build_model(classes: int) -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(3, 32, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(4),
        nn.Flatten(),
        nn.Linear(32 * 56 * 56, classes),
    )


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--batch-size", type=int, default=64, help="per process")
    parser.add_argument("--data", default="data/train")
    args = parser.parse_args()

    rank, world_size = int(os.environ["SLURM_PROCID"]), int(os.environ["SLURM_NTASKS"])
    local_rank = int(os.environ["SLURM_LOCALID"])
    torch.cuda.set_device(local_rank)
    dist.init_process_group("nccl", rank=rank, world_size=world_size)
    torch.manual_seed(0)

    images = datasets.ImageFolder(
        args.data, transforms.Compose([transforms.Resize((224, 224)), transforms.ToTensor()])
    )
    sampler = DistributedSampler(images, shuffle=True)
    loader = DataLoader(images, batch_size=args.batch_size, sampler=sampler, num_workers=4, pin_memory=True)

    model = DistributedDataParallel(build_model(len(images.classes)).cuda(), device_ids=[local_rank])
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    loss_function = nn.CrossEntropyLoss()
    try:
        for epoch in range(args.epochs):
            sampler.set_epoch(epoch)
            for inputs, targets in loader:
                optimizer.zero_grad()
                loss = loss_function(model(inputs.cuda()), targets.cuda())
                loss.backward()
                optimizer.step()
            if dist.get_rank() == 0:
                torch.save(model.module.state_dict(), "model.pt.tmp")
                Path("model.pt.tmp").replace("model.pt")
    finally:
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
