"""One program for one process and for many, as the older examples of PyTorch are made."""

import argparse
import os

import torch
import torch.distributed as dist
import torch.nn as nn
from helpers import init_distributed_mode, is_main_process, save_on_master
from torch.utils.data import DataLoader
from torch.utils.data.distributed import DistributedSampler
from torchvision import datasets, transforms


def parse():
    parser = argparse.ArgumentParser()
    parser.add_argument("--local_rank", type=int, default=-1)
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--resume", default="")
    return parser.parse_args()


def main():
    args = parse()
    init_distributed_mode(args)
    device = torch.device("cuda", args.gpu)
    torch.manual_seed(3)

    data = datasets.FakeData(20000, (3, 64, 64), 10, transforms.ToTensor())
    sampler = DistributedSampler(data) if args.distributed else None
    loader = DataLoader(data, args.batch_size, shuffle=(sampler is None), sampler=sampler, num_workers=8)
    model = nn.Sequential(nn.Flatten(), nn.Linear(3 * 64 * 64, 10)).to(device)
    bare = model
    if args.distributed:
        model = nn.parallel.DistributedDataParallel(model, device_ids=[args.gpu])
        bare = model.module
    optimizer = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9)
    first = 0
    if args.resume:
        state = torch.load(args.resume, map_location="cpu")
        bare.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
        first = state["epoch"] + 1

    for epoch in range(first, args.epochs):
        if args.distributed:
            sampler.set_epoch(epoch)
        for images, labels in loader:
            loss = nn.functional.cross_entropy(model(images.to(device)), labels.to(device))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        save_on_master(
            {"model": bare.state_dict(), "optimizer": optimizer.state_dict(), "epoch": epoch},
            os.path.join("runs", f"epoch-{epoch}.pt"),
        )
        if is_main_process():
            print("epoch", epoch, "loss", loss.item())
    if args.distributed:
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
