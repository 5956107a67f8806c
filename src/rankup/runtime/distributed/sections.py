"""``rankup.first``: sections that one process enters before the others: downloads, caches, unpacking.

The other ranks wait on the patient group, whose timeout is a day: a download may take longer than other collectives.
If the body raises, its rank ends; the others see its connection close, and end too.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import torch
import torch.distributed as dist

from rankup.core.files import locked, make_folder
from rankup.errors import RankupError
from rankup.runtime.distributed import groups
from rankup.world import World


def first(per: str = "run", *, directory: str | Path | None = None) -> AbstractContextManager[None]:
    """``with rankup.first():`` rank 0 runs the body, then all others do; ``per="node"``: one process of each node.

    ``directory``: for downloads to it. One process in all goes first if all nodes share it, else one per node; under a
    file lock, so that two jobs do not fetch at once. The body must look whether the work is done. A collective: every
    rank calls it, after ``rankup.init()``.
    """
    if per not in ("run", "node"):
        raise RankupError("bad-option", f"rankup.first({per!r}): per is 'run' or 'node'", exit_code=1)
    here = groups.of_process("rankup.first")
    if here.control is not None:
        here.control.enter("rankup.first")
    if directory is not None:
        return _shared_first(Path(directory), here.world, here.patient)
    rank = here.world.rank if per == "run" else here.world.local_rank
    return _one_first(rank == 0, here.patient)


@contextmanager
def _one_first(first: bool, control: dist.ProcessGroup | None) -> Iterator[None]:
    """The ranks for which ``first`` holds run the body, then all the others do."""
    if control is not None and not first:
        dist.barrier(group=control)
    yield
    if control is not None and first:
        dist.barrier(group=control)


@contextmanager
def _shared_first(directory: Path, world: World, control: dist.ProcessGroup | None) -> Iterator[None]:
    """One process in all first where all nodes see the same ``directory``, else one per node; under a file lock.

    The lock keeps out other jobs on this host too, and is dropped before the other ranks go in.
    """
    if world.local_rank == 0:
        make_folder(directory, purpose="directory to fill")
    first = world.local_rank == 0
    if control is not None and world.num_nodes > 1 and _same_everywhere(directory, world, control):
        first = world.rank == 0
    with _one_first(first, control):
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
