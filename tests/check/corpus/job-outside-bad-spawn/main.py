import argparse
import os

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch.nn.parallel import DistributedDataParallel as DDP


def work(i, a, n):
    rank = a.node_rank * n + i
    world = n * a.nodes
    dist.init_process_group("nccl", init_method="env://", rank=rank, world_size=world)
    torch.cuda.set_device(i)
    m = DDP(torch.nn.Linear(2, 2).cuda(i), device_ids=[i])
    o = torch.optim.SGD(m.parameters(), lr=0.01)
    torch.manual_seed(rank)
    for _ in range(10):
        o.zero_grad()
        m(torch.randn(8, 2, device=i)).sum().backward()
        o.step()
    if rank == 0:
        torch.save(m.module.state_dict(), "x.pt")
    dist.destroy_process_group()


if __name__ == "__main__":
    p = argparse.ArgumentParser()
    p.add_argument("--nodes", type=int, default=1)
    p.add_argument("--node-rank", type=int, default=int(os.environ.get("SLURM_NODEID", "0")))
    a = p.parse_args()
    n = torch.cuda.device_count()
    mp.spawn(work, args=(a, n), nprocs=n, join=True)
