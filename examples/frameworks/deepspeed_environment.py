"""Checks the five variables that ``deepspeed.init_distributed()`` needs, without DeepSpeed.

If one is missing, DeepSpeed assumes an MPI job and imports mpi4py. This fails, or makes every process rank 0 of 1.

torchrun --standalone --nproc-per-node 2 examples/frameworks/deepspeed_environment.py
rankup run --nproc-per-node 2 examples/frameworks/deepspeed_environment.py
"""

from __future__ import annotations

import os
import time

import torch
import torch.distributed as dist

REQUIRED = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT")


def main() -> None:
    missing = [name for name in REQUIRED if name not in os.environ]
    if missing:
        raise SystemExit(f"DeepSpeed would ask MPI, since these are not set: {', '.join(missing)}")
    values = "  ".join(f"{name}={os.environ[name]}" for name in REQUIRED)

    # Like DeepSpeed's default backend: read rank and size from the environment ("env://").
    dist.init_process_group("nccl" if torch.cuda.is_available() else "gloo")
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"])) if torch.cuda.is_available() else "cpu"
    ranks = torch.tensor(dist.get_rank(), device=device)
    dist.all_reduce(ranks)
    print(f"{values}\nrank {dist.get_rank()} of {dist.get_world_size()} is done, sum of ranks {ranks.item()}")
    # gloo's thread may still hold the last tensors; if the interpreter ends now, it can abort or hang (torch 2.13).
    time.sleep(0.5)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
