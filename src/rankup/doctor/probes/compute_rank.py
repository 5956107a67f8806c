"""One rank with tensors: a matrix product, then all-reduces whose result is known. Prints one JSON line per stage.

It is started as a file, by the job's own interpreter: it imports torch and the standard library alone. What it needs is
in its environment: RANK, WORLD_SIZE, LOCAL_RANK, RANKUP_DOCTOR_MEET (address and port of rank 0) and the interface of
gloo. The store of the process group listens on that one address, not on all as torch's own does.
"""

from __future__ import annotations

import json
import os
import socket
import statistics
import sys
import time
from collections.abc import Callable
from datetime import timedelta

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import Store, TCPStore

_PAIRS_BY_GROUP = 16  # ranks up to which every pair has a group of its own; more exchange tensors
_PEERS = 64  # ranks up to which every pair exchanges; of more each rank meets log₂ n others
_ROUNDS = 5
SIZES = {
    "cpu": (4096, 256 * 1024, 4 * 1024**2),
    "cuda": (64 * 1024, 4 * 1024**2, 64 * 1024**2, 256 * 1024**2),
}
PRODUCT = {"cpu": (768, torch.float32), "cuda": (8192, torch.bfloat16)}


def main() -> None:
    rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    local = int(os.environ["LOCAL_RANK"])
    stage = "device"
    try:
        if torch.cuda.is_available():
            device = torch.device("cuda", local % torch.cuda.device_count())
            torch.cuda.set_device(device)
        else:
            device = torch.device("cpu")
        _say("device", device=str(device), torch=torch.__version__, threads=torch.get_num_threads())
        stage = "product"
        _say("product", flops=product(device))
        stage = "group"
        backend = "nccl" if device.type == "cuda" else "gloo"
        store = _store(rank, world)
        dist.init_process_group(
            backend,
            store=store,
            rank=rank,
            world_size=world,
            timeout=timedelta(seconds=float(os.environ["RANKUP_DOCTOR_WAIT"])),
        )
        _say("group", backend=backend)
        stage = "sum"
        _say("sum", right=_right_sum(rank, world, device, None, list(range(world))))
        stage = "pairs"
        _say("pairs", wrong=_wrong_pairs(rank, world, device))
        stage = "bandwidth"
        _say("bandwidth", bytes_per_second=bandwidth(world, device))
        stage = "end"
        dist.barrier()
        dist.destroy_process_group()
        _say("end")
    except Exception as error:  # whatever is wrong is what we are here to find
        _say(
            "failed",
            at=stage,
            error=f"{type(error).__name__}: {str(error).strip().splitlines()[0] if str(error) else ''}"[:300],
        )
    sys.stdout.flush()
    os._exit(0)  # without waiting for peers that hang


def product(device: torch.device) -> float:
    """Floating-point operations per second of the best of several matrix products.

    On CPUs by the processor time that they were given: a core that somebody else uses is a straggler (``cpus``), and a
    machine that is busy for a moment is not a slow rank.
    """
    size, dtype = PRODUCT[device.type]
    a, b = (torch.ones(size, size, dtype=dtype, device=device) for _ in range(2))
    timed = _timed if device.type == "cuda" else _given
    best = min(timed(lambda: a @ b, device) for _ in range(2 * _ROUNDS))
    return 2 * size**3 / best


def bandwidth(world: int, device: torch.device) -> dict[str, float]:
    """Bytes → bytes per second of each link of a ring, 2(n−1)/n · size / time; the median of the rounds."""
    found = {}
    for size in SIZES[device.type]:
        tensor = torch.zeros(size // 4, device=device)
        dist.all_reduce(tensor)
        seconds = []
        for _ in range(_ROUNDS):
            dist.barrier()
            seconds.append(_timed(lambda: dist.all_reduce(tensor), device))  # noqa: B023  # called at once
        found[str(size)] = 2 * (world - 1) / world * size / statistics.median(seconds)
    return found


def _timed(work: Callable[[], object], device: torch.device) -> float:
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    began = time.perf_counter()
    work()
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    return max(time.perf_counter() - began, 1e-9)


def _given(work: Callable[[], object], device: torch.device) -> float:
    """Seconds of processor time, of each thread."""
    cpu = time.process_time()
    elapsed = _timed(work, device)
    return max(min(elapsed, (time.process_time() - cpu) / torch.get_num_threads()), 1e-9)


def _right_sum(
    rank: int, world: int, device: torch.device, group: dist.ProcessGroup | None, members: list[int]
) -> bool:
    """Whether the sum of what the members have is what it must be, in each of 1,000 elements."""
    tensor = torch.arange(1000, device=device, dtype=torch.int64) * (rank + 1)
    dist.all_reduce(tensor, group=group)
    expected = torch.arange(1000, device=device, dtype=torch.int64) * sum(member + 1 for member in members)
    return bool(torch.equal(tensor, expected))


def _wrong_pairs(rank: int, world: int, device: torch.device) -> list[int]:
    """The peers with which this rank got something wrong."""
    wrong = []
    if world <= _PAIRS_BY_GROUP:
        for low in range(world):
            for high in range(low + 1, world):
                group = dist.new_group([low, high])
                if rank in (low, high) and not _right_sum(rank, world, device, group, [low, high]):
                    wrong.append(high if rank == low else low)
        return wrong
    distances = (
        list(range(1, world))
        if world <= _PEERS
        else [2**i for i in range(world.bit_length()) if 2**i < world]
    )
    for distance in distances:
        source, target = (rank - distance) % world, (rank + distance) % world
        sent, got = torch.full((1000,), rank, device=device), torch.full((1000,), -1, device=device)
        for work in dist.batch_isend_irecv(
            [dist.P2POp(dist.isend, sent, target), dist.P2POp(dist.irecv, got, source)]
        ):
            work.wait()
        if not bool((got == source).all()):
            wrong.append(source)
    return wrong


def _store(rank: int, world: int) -> Store:
    host, _, port = os.environ["RANKUP_DOCTOR_MEET"].rpartition(":")
    wait = timedelta(seconds=float(os.environ["RANKUP_DOCTOR_WAIT"]))
    if rank != 0:
        return TCPStore(host, int(port), world, False, timeout=wait)
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.bind((host, int(port)))
    listener.listen(1024)
    # The store owns it from here on.
    return TCPStore(
        host, int(port), world, True, timeout=wait, wait_for_workers=False, master_listen_fd=listener.detach()
    )


def _say(stage: str, **facts: object) -> None:
    print(json.dumps({"stage": stage, **facts}), flush=True)


if __name__ == "__main__":
    main()
