"""ResNet-18 on images in folders: DDP, mixed precision, exact evaluation, resume."""

import argparse
import os

import torch
import torch.distributed as dist
from data import loaders
from snapshots import load_snapshot, save_snapshot
from torch.nn.parallel import DistributedDataParallel as DDP
from torchvision.models import resnet18


def evaluate(model, loader, device):
    model.eval()
    sums = torch.zeros(2, device=device)
    with torch.no_grad():
        for images, labels in loader:
            images, labels = images.to(device), labels.to(device)
            right = (model(images).argmax(1) == labels).sum()
            sums += torch.stack([right.float(), torch.tensor(float(len(labels)), device=device)])
    dist.all_reduce(sums)
    return (sums[0] / sums[1]).item()


def train_epoch(model, loader, optimizer, scaler, device):
    model.train()
    for images, labels in loader:
        optimizer.zero_grad(set_to_none=True)
        with torch.autocast("cuda"):
            loss = torch.nn.functional.cross_entropy(model(images.to(device)), labels.to(device))
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=30)
    parser.add_argument("--batch-size", type=int, default=64, help="per GPU")
    parser.add_argument("--snapshot", default="last.pt")
    args = parser.parse_args()

    dist.init_process_group("nccl")
    local_rank = int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(local_rank)
    device = torch.device("cuda", local_rank)
    torch.manual_seed(0)

    train, valid = loaders(args.batch_size)
    model = DDP(resnet18(num_classes=100).to(device), device_ids=[local_rank])
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    scaler = torch.amp.GradScaler("cuda")
    start = load_snapshot(args.snapshot, model, optimizer, scaler)

    for epoch in range(start, args.epochs):
        train.sampler.set_epoch(epoch)
        train_epoch(model, train, optimizer, scaler, device)
        accuracy = evaluate(model.module, valid, device)
        if dist.get_rank() == 0:
            print(f"epoch {epoch}: {accuracy:.4f}")
            save_snapshot(args.snapshot, model, optimizer, scaler, epoch + 1)
        dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
