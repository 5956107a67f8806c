"""Distributed data parallelism in plain PyTorch: a script for torchrun, which any launcher can start.

torchrun --standalone --nproc-per-node 2 examples/ddp_plain.py
rankup run --nproc-per-node 2 examples/ddp_plain.py
"""

from __future__ import annotations

import argparse
import os
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler


def make_data(samples: int) -> TensorDataset:
    """Points in 16 dimensions, (samples, 16), labelled by the side of a fixed plane that they are on."""
    generator = torch.Generator().manual_seed(0)
    points = torch.randn(samples, 16, generator=generator)
    plane = torch.randn(16, generator=generator)
    return TensorDataset(points, (points @ plane > 0).long())


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--batch", type=int, default=32, help="per process")
    parser.add_argument("--lr", type=float, default=0.1)
    args = parser.parse_args()

    use_cuda = torch.cuda.is_available()
    dist.init_process_group("nccl" if use_cuda else "gloo")
    rank, local_rank = dist.get_rank(), int(os.environ["LOCAL_RANK"])
    device = torch.device("cuda", local_rank) if use_cuda else torch.device("cpu")
    torch.manual_seed(0)

    data = make_data(2048)
    sampler = DistributedSampler(data)
    loader = DataLoader(data, batch_size=args.batch, sampler=sampler)
    network = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 2)).to(device)
    model = DistributedDataParallel(network, device_ids=[local_rank] if use_cuda else None)
    optimizer = torch.optim.SGD(model.parameters(), lr=args.lr)

    for epoch in range(args.epochs):
        sampler.set_epoch(epoch)
        # Sum of the losses, number of right answers, number of samples: added up over all processes below.
        totals = torch.zeros(3, device=device)
        for batch in loader:
            points, labels = (tensor.to(device) for tensor in batch)
            scores = model(points)
            loss = nn.functional.cross_entropy(scores, labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            right = (scores.argmax(1) == labels).sum()
            totals += torch.stack(
                [loss.detach() * len(labels), right, torch.tensor(len(labels), device=device)]
            )
        dist.all_reduce(totals)
        if rank == 0:
            loss_sum, right_sum, count = totals.tolist()
            print(f"epoch {epoch + 1}  loss {loss_sum / count:.4f}  accuracy {right_sum / count:.4f}")

    size = sum(p.detach().double().abs().sum().item() for p in model.parameters())
    print(f"rank {rank} of {dist.get_world_size()} is done, weights {size:.9f}")
    # gloo's thread may still hold the last tensors; if the interpreter ends now, it can abort or hang (torch 2.13).
    time.sleep(0.5)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
