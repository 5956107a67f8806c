import os

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP

RANK = int(os.environ["RANK"])
LOCAL = int(os.environ["LOCAL_RANK"])
WORLD = int(os.environ["WORLD_SIZE"])


def rank0_print(*a):
    if RANK == 0:
        print(*a, flush=True)


@torch.inference_mode()
def validate(model, xs, ys):
    n = len(xs) // WORLD
    part = slice(RANK * n, (RANK + 1) * n)
    hit = (model(xs[part].cuda()).argmax(1).cpu() == ys[part]).sum()
    t = torch.tensor([hit, n], device="cuda", dtype=torch.float64)
    dist.all_reduce(t, op=dist.ReduceOp.SUM)
    return (t[0] / t[1]).item()


def main():
    torch.cuda.set_device(LOCAL)
    dist.init_process_group("nccl", device_id=torch.device(f"cuda:{LOCAL}"))
    g = torch.Generator().manual_seed(0)
    xs, ys = torch.randn(4096, 20, generator=g), torch.randint(0, 4, (4096,), generator=g)
    mine = torch.arange(RANK, len(xs), WORLD)
    model = DDP(torch.nn.Linear(20, 4).cuda(), device_ids=[LOCAL])
    opt = torch.optim.SGD(model.parameters(), lr=0.1)
    best = 0.0
    for ep in range(3):
        for chunk in mine[torch.randperm(len(mine))].split(64):
            opt.zero_grad(set_to_none=True)
            torch.nn.functional.cross_entropy(model(xs[chunk].cuda()), ys[chunk].cuda()).backward()
            opt.step()
        acc = validate(model.module, xs, ys)
        rank0_print(ep, acc)
        if acc > best:
            best = acc
            if RANK == 0:
                torch.save(model.module.state_dict(), "best.pt")
    dist.barrier(device_ids=[LOCAL])
    dist.destroy_process_group()


main()
