"""A part of the data is held out; the global batch is divided, and the schedule knows the steps of a rank."""

import argparse
import os

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler, Subset, random_split
from torchvision import datasets, transforms


@torch.no_grad()
def evaluate(model, loader, device):
    model.eval()
    sums = torch.zeros(2, device=device)
    for images, labels in loader:
        right = (model(images.to(device)).argmax(1) == labels.to(device)).sum()
        sums += torch.stack([right.float(), torch.tensor(float(len(labels)), device=device)])
    dist.all_reduce(sums)
    model.train()
    return (sums[0] / sums[1]).item()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=20)
    parser.add_argument("--batch-size", type=int, default=256, help="of all GPUs together")
    parser.add_argument("--workers", type=int, default=7)
    args = parser.parse_args()

    local_rank = int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(local_rank)
    dist.init_process_group("nccl")
    rank, world_size = dist.get_rank(), dist.get_world_size()

    data = datasets.ImageFolder(
        "data/all", transforms.Compose([transforms.Resize((64, 64)), transforms.ToTensor()])
    )
    train, valid = random_split(data, [0.9, 0.1], generator=torch.Generator().manual_seed(0))
    sampler = DistributedSampler(train)
    train_loader = DataLoader(train, args.batch_size // world_size, sampler=sampler, num_workers=args.workers)
    part = Subset(valid, range(rank, len(valid), world_size))
    valid_loader = DataLoader(part, 256, num_workers=args.workers)

    net = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(3 * 64 * 64, len(data.classes)))
    model = DDP(net.cuda(), device_ids=[local_rank])
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    scheduler = torch.optim.lr_scheduler.OneCycleLR(
        optimizer, max_lr=0.4, total_steps=args.epochs * len(train_loader)
    )
    for epoch in range(args.epochs):
        sampler.set_epoch(epoch)
        for images, labels in train_loader:
            loss = torch.nn.functional.cross_entropy(model(images.cuda()), labels.cuda())
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            scheduler.step()
        accuracy = evaluate(model.module, valid_loader, "cuda")
        if rank == 0:
            print(f"epoch {epoch}: {accuracy:.4f}")
    if rank == 0:
        torch.save(model.module.state_dict(), "model.pt")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
