"""Hugging Face Accelerate: a plain loop whose objects are prepared.

accelerate launch --num_processes 2 examples/frameworks/accelerate_loop.py
rankup run --nproc-per-node 2 examples/frameworks/accelerate_loop.py
"""

from __future__ import annotations

import argparse
import time

import torch
from accelerate import Accelerator
from accelerate.utils import set_seed
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


def make_data(samples: int) -> TensorDataset:
    """Points in 16 dimensions, (samples, 16), labelled by the side of a fixed plane that they are on."""
    generator = torch.Generator().manual_seed(0)
    points = torch.randn(samples, 16, generator=generator)
    plane = torch.randn(16, generator=generator)
    return TensorDataset(points, (points @ plane > 0).long())


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--batch", type=int, default=32, help="per process")
    args = parser.parse_args()

    accelerator = Accelerator()
    set_seed(0)
    network = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 2))
    optimizer = torch.optim.SGD(network.parameters(), lr=0.1)
    loader = DataLoader(make_data(512), batch_size=args.batch, shuffle=True)
    model, optimizer, loader = accelerator.prepare(network, optimizer, loader)

    for epoch in range(args.epochs):
        for points, labels in loader:
            loss = nn.functional.cross_entropy(model(points), labels)
            accelerator.backward(loss)
            optimizer.step()
            optimizer.zero_grad()
        accelerator.print(f"epoch {epoch + 1}  loss {loss.item():.4f}")

    size = sum(p.detach().double().abs().sum().item() for p in model.parameters())
    rank, world_size = accelerator.process_index, accelerator.num_processes
    print(f"rank {rank} of {world_size} is done, weights {size:.9f}")
    # gloo's thread may still hold the last tensors; if the interpreter ends now, it can abort or hang (torch 2.13).
    time.sleep(0.5)
    accelerator.end_training()


if __name__ == "__main__":
    main()
