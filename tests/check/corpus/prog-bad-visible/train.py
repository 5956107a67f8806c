"""The list of visible devices as an index, a table of GPUs, and a list of its own."""

import os

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP

TABLE = {0: 0, 1: 1, 2: 2, 3: 3}


def main():
    os.environ["CUDA_VISIBLE_DEVICES"] = "0,1,2,3"
    dist.init_process_group("nccl")
    rank = dist.get_rank()
    torch.cuda.set_device(TABLE[rank])
    other = torch.device("cuda", int(os.environ["CUDA_VISIBLE_DEVICES"].split(",")[rank]))
    model = DDP(torch.nn.Linear(4, 4).to(other))
    total = torch.zeros(1, device=other)
    for step in range(100):
        loss = model(torch.randn(8, 4, device=other)).pow(2).mean()
        loss.backward()
        total += loss.detach()
        dist.reduce(total, dst=0)
        if total.item() > 1000:
            break
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
