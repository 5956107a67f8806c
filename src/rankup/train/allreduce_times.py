"""``python -m rankup.train.allreduce_times BYTES …``: one rank of a bandwidth sweep, under any launcher.

Rank 0 writes a record ``allreduce`` for each link and size into the run directory. ``inside``: over the ranks of a
node; ``between``: over one rank of each node.
"""

from __future__ import annotations

import os
import statistics
import sys
import time
from collections.abc import Sequence

import torch
import torch.distributed as dist

from rankup.core.records import RecordWriter
from rankup.core.rundir import RunDir
from rankup.runtime.api import Run
from rankup.runtime.init import init
from rankup.world import World

ROUNDS = 7
IN_A_ROW = 4  # all-reduces of a round: one alone would mostly time how late the ranks come


def measure(sizes: Sequence[int], group: dist.ProcessGroup, device: torch.device) -> list[tuple[int, float]]:
    """(bytes, seconds) of an all-reduce of each size over ``group``: the median of the rounds. A collective."""
    found = []
    for size in sizes:
        tensor = torch.zeros(max(size // 4, 1), device=device)
        seconds = [_seconds(tensor, group) for _ in range(ROUNDS + 1)][1:]  # the first connects
        found.append((tensor.numel() * 4, statistics.median(seconds)))
    return found


def _seconds(tensor: torch.Tensor, group: dist.ProcessGroup) -> float:
    dist.barrier(group)
    began = time.perf_counter()
    for _ in range(IN_A_ROW):
        dist.all_reduce(tensor, group=group)
    if tensor.is_cuda:
        torch.cuda.synchronize(tensor.device)
    return (time.perf_counter() - began) / IN_A_ROW


def sweep(run: Run, world: World, sizes: Sequence[int]) -> dict[str, list[tuple[int, float]]]:
    """By link, what this rank measured. All ranks make all groups, as torch requires."""
    each = world.local_world_size
    nodes = [list(range(first, first + each)) for first in range(0, world.world_size, each)]
    groups = {
        "inside": nodes if each > 1 else [],
        "between": [[node[0] for node in nodes]] if len(nodes) > 1 else [],
    }
    found = {}
    for name, of_ranks in groups.items():
        for ranks in of_ranks:
            group = dist.new_group(ranks)
            if world.rank in ranks:
                assert isinstance(group, dist.ProcessGroup)
                found[name] = measure(sizes, group, run.device)
        dist.barrier()  # one link at a time
    return found


def main() -> None:
    world = World.detect(os.environ)
    run = init()
    found = sweep(run, world, [int(word) for word in sys.argv[1:]])
    folder = RunDir.from_environment()
    if world.rank == 0 and folder is not None:
        with RecordWriter(folder.records / "links.jsonl") as records:
            for name, pairs in found.items():
                devices = world.local_world_size if name == "inside" else world.num_nodes
                for size, seconds in pairs:
                    records.write("allreduce", link=name, devices=devices, bytes=size, seconds=seconds)


if __name__ == "__main__":
    main()
