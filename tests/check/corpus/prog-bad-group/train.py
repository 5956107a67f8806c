"""A group of a fixed size, asked for before it exists; no GPU is chosen and no gradient is averaged."""

import os

import torch
import torch.distributed as dist

FIRST = dist.get_rank() == 0 if dist.is_initialized() else True


def main():
    dist.init_process_group(
        "nccl", init_method="file:///project/rendezvous", rank=int(os.environ["RANK"]), world_size=4
    )
    model = torch.nn.Linear(16, 1).to("cuda")
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(100):
        loss = model(torch.randn(8, 16, device="cuda")).pow(2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    if FIRST:
        print(loss.item())
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
