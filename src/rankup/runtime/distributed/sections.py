"""Sections that one process enters before the others: downloads, caches, unpacking.

The other ranks wait on the patient group, whose timeout is a day: a download may take longer than other collectives.
If the body raises, its rank ends; the others see its connection close, and end too.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import torch
import torch.distributed as dist

from rankup.core.files import locked, make_folder
from rankup.world import World


@contextmanager
def one_first(first: bool, control: dist.ProcessGroup | None) -> Iterator[None]:
    """The ranks for which ``first`` holds run the body, then all the others do."""
    if control is not None and not first:
        dist.barrier(group=control)
    yield
    if control is not None and first:
        dist.barrier(group=control)


@contextmanager
def shared_first(directory: Path, world: World, control: dist.ProcessGroup | None) -> Iterator[None]:
    """One process in all first where all nodes see the same ``directory``, else one per node; under a file lock.

    The lock keeps out other jobs on this host too, and is dropped before the other ranks go in.
    """
    if world.local_rank == 0:
        make_folder(directory, purpose="directory to fill")
    first = world.local_rank == 0
    if control is not None and world.num_nodes > 1 and _same_everywhere(directory, world, control):
        first = world.rank == 0
    with one_first(first, control):
        if first:
            with locked(directory / ".rankup.lock"):
                yield
        else:
            yield


def _same_everywhere(directory: Path, world: World, control: dist.ProcessGroup) -> bool:
    """Whether every node sees a file that rank 0 makes. Its name is new, so that no cache has it."""
    name: list[str | None] = [f".rankup-probe-{secrets.token_hex(8)}" if world.rank == 0 else None]
    dist.broadcast_object_list(name, src=0, group=control)
    probe = directory / str(name[0])
    if world.rank == 0:
        probe.touch()
    dist.barrier(group=control)
    seen = torch.tensor(int(world.local_rank != 0 or probe.exists()))
    dist.all_reduce(seen, op=dist.ReduceOp.MIN, group=control)
    if world.rank == 0:
        probe.unlink()
    return bool(seen.item())
