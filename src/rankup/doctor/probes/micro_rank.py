"""``python -m rankup.doctor.probes.micro_rank NAME DTYPE SIZE …``: one rank of a micro-benchmark.

Rank 0 writes a record ``micro`` for each size into the run directory.
"""

from __future__ import annotations

import os
import statistics
import sys
import time
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist

from rankup.core.records import RecordWriter
from rankup.core.rundir import RunDir
from rankup.world.address import interface_of, route_to

_ROUNDS, _WARM_UP = 7, 2
_DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16, "fp64": torch.float64}
Work = Callable[[], object]


def layernorm(size: int, dtype: torch.dtype, device: torch.device) -> dict[str, Any]:
    """Rows of ``size`` features, 4 million elements in all. The rate counts them read and written once, forward."""
    rows = max(4 * 1024**2 // size, 1)
    layer = torch.nn.LayerNorm(size, device=device, dtype=dtype)
    x = torch.randn(rows, size, device=device, dtype=dtype, requires_grad=True)
    bytes_moved = 2 * x.numel() * x.element_size()
    return _both(lambda: layer(x), device, bytes_moved, "GB/s")


def matmul(size: int, dtype: torch.dtype, device: torch.device) -> dict[str, Any]:
    """A square product; backward are two of them."""
    a, b = (torch.randn(size, size, device=device, dtype=dtype, requires_grad=True) for _ in range(2))
    return _both(lambda: a @ b, device, 2 * size**3, "GFLOP/s")


def allreduce(size: int, dtype: torch.dtype, device: torch.device) -> dict[str, Any]:
    """``size`` bytes; the rate is that of each link of a ring, 2(n−1)/n · size / time."""
    tensor = torch.zeros(max(size // dtype.itemsize, 1), device=device, dtype=dtype)
    world = dist.get_world_size()
    seconds = _seconds(lambda: dist.all_reduce(tensor), device, before=dist.barrier)
    return {
        "forward": seconds,
        "backward": None,
        "rate": 2 * (world - 1) / world * size / seconds / 1e9,
        "unit": "GB/s",
    }


def _both(forward: Callable[[], Any], device: torch.device, amount: float, unit: str) -> dict[str, Any]:
    with torch.no_grad():
        alone = _seconds(forward, device)
    gradient = torch.ones_like(forward())
    both = _seconds(lambda: forward().backward(gradient), device)
    return {"forward": alone, "backward": max(both - alone, 0.0), "rate": amount / alone / 1e9, "unit": unit}


def _seconds(work: Work, device: torch.device, before: Work = lambda: None) -> float:
    """The median of the rounds."""
    found = []
    for number in range(_ROUNDS + _WARM_UP):
        before()
        _wait(device)
        began = time.perf_counter()
        work()
        _wait(device)
        if number >= _WARM_UP:
            found.append(time.perf_counter() - began)
    return max(statistics.median(found), 1e-9)


def _wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


_BENCHMARKS = {"layernorm": layernorm, "matmul": matmul, "allreduce": allreduce}


def main() -> None:
    name, dtype, *sizes = sys.argv[1:]
    rank, local = int(os.environ.get("RANK", "0")), int(os.environ.get("LOCAL_RANK", "0"))
    device = torch.device("cpu")
    # Ranks that would share a GPU use the cores: NCCL refuses them.
    if (
        torch.cuda.is_available()
        and int(os.environ.get("LOCAL_WORLD_SIZE", "1")) <= torch.cuda.device_count()
    ):
        device = torch.device("cuda", local % torch.cuda.device_count())
        torch.cuda.set_device(device)
    if name == "allreduce":
        _meet(device)
    folder = RunDir.from_environment()
    for size in map(int, sizes):
        found = _BENCHMARKS[name](size, _DTYPES[dtype], device)
        if rank == 0 and folder is not None:
            with RecordWriter(folder.records / "micro.jsonl") as records:
                records.write("micro", benchmark=name, size=size, dtype=dtype, device=device.type, **found)
    if dist.is_initialized():
        dist.barrier()
        dist.destroy_process_group()


def _meet(device: torch.device) -> None:
    # gloo would take the address of the machine's own name, which need not be that of the route.
    if "GLOO_SOCKET_IFNAME" not in os.environ and os.environ.get("MASTER_ADDR"):
        interface = interface_of(route_to(os.environ["MASTER_ADDR"]))
        if interface:
            os.environ["GLOO_SOCKET_IFNAME"] = interface
    dist.init_process_group("nccl" if device.type == "cuda" else "gloo")


if __name__ == "__main__":
    main()
