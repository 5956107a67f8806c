"""The time of a training step on made-up data, for one GPU and for several."""

import argparse
import os
import time

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--precision", choices=["fp32", "bf16"], default="fp32")
    parser.add_argument("--steps", type=int, default=100)
    args = parser.parse_args()

    dist.init_process_group("nccl")
    local_rank = int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(local_rank)
    torch.backends.cuda.matmul.allow_tf32 = True

    model = DDP(torch.nn.Linear(4096, 4096).cuda(), device_ids=[local_rank])
    x = torch.randn(512, 4096, device="cuda")

    times = []
    for _ in range(args.steps):
        torch.cuda.synchronize()
        start = time.perf_counter()
        with torch.autocast("cuda", torch.bfloat16, enabled=args.precision == "bf16"):
            loss = model(x).square().mean()
        loss.backward()
        torch.cuda.synchronize()
        times.append(time.perf_counter() - start)
    seconds = sorted(times)[len(times) // 2]
    if dist.get_rank() == 0:
        print(dist.get_world_size(), args.precision, seconds)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
