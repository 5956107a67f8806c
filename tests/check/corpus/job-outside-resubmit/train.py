import os
import signal
from pathlib import Path

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP

stop = False


def handler(*_):
    global stop
    stop = True


signal.signal(signal.SIGTERM, handler)


def env(n, *alts):
    for k in (n, *alts):
        if k in os.environ:
            return int(os.environ[k])
    raise KeyError(n)


rank, world, local = (
    env("RANK", "SLURM_PROCID"),
    env("WORLD_SIZE", "SLURM_NTASKS"),
    env("LOCAL_RANK", "SLURM_LOCALID"),
)
dist.init_process_group("nccl", rank=rank, world_size=world)
torch.cuda.set_device(local)
model = DDP(torch.nn.Linear(4, 4).to(local), device_ids=[local])
opt = torch.optim.AdamW(model.parameters(), 1e-3)
step = 0
if Path("last.pt").exists():
    ck = torch.load("last.pt", map_location=f"cuda:{local}")
    model.load_state_dict(ck["model"])
    opt.load_state_dict(ck["opt"])
    step = ck["step"]
gen = torch.Generator().manual_seed(rank)
while step < 10**6:
    x = torch.randn(16, 4, generator=gen).to(local)
    opt.zero_grad()
    model(x).square().mean().backward()
    opt.step()
    step += 1
    flag = torch.tensor([float(stop)], device=local)
    dist.all_reduce(flag, op=dist.ReduceOp.MAX)
    if flag.item() or step % 1000 == 0:
        if rank == 0:
            torch.save({"model": model.state_dict(), "opt": opt.state_dict(), "step": step}, "last.pt.new")
            Path("last.pt.new").rename("last.pt")
        dist.barrier()
    if flag.item():
        break
dist.destroy_process_group()
