"""``rankup.first``: sections that one process enters before the others: downloads, caches, unpacking.

The other ranks wait for up to a day: a download may take longer than other collectives.
If the body raises, its rank ends; the others see its connection close, and end too.
"""

from __future__ import annotations

import operator
import secrets
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from datetime import timedelta
from pathlib import Path

from rankup.core.files import locked, make_folder
from rankup.errors import RankupError
from rankup.messages.tree import Tree, of_all_ranks
from rankup.runtime.distributed import groups
from rankup.world import World

PATIENCE = timedelta(days=1)


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
    patient = of_all_ranks("first", PATIENCE)
    if directory is not None:
        return _shared_first(Path(directory), here.world, patient)
    rank = here.world.rank if per == "run" else here.world.local_rank
    return _one_first(rank == 0, patient)


@contextmanager
def _one_first(first: bool, patient: Tree) -> Iterator[None]:
    """The ranks for which ``first`` holds run the body, then all the others do."""
    if not first:
        patient.barrier()
    yield
    if first:
        patient.barrier()


@contextmanager
def _shared_first(directory: Path, world: World, patient: Tree) -> Iterator[None]:
    """One process in all first where all nodes see the same ``directory``, else one per node; under a file lock.

    The lock keeps out other jobs on this host too, and is dropped before the other ranks go in.
    """
    if world.local_rank == 0:
        make_folder(directory, purpose="directory to fill")
    first = world.local_rank == 0
    if world.num_nodes > 1 and _same_everywhere(directory, world, patient):
        first = world.rank == 0
    with _one_first(first, patient):
        if first:
            with locked(directory / ".rankup.lock"):
                yield
        else:
            yield


def _same_everywhere(directory: Path, world: World, patient: Tree) -> bool:
    """Whether every node sees a file that rank 0 makes. Its name is new, so that no cache has it."""
    name = f".rankup-probe-{secrets.token_hex(8)}"
    if world.rank == 0:
        (directory / name).touch()
    probe = directory / patient.broadcast(name)
    seen = patient.exchange(world.local_rank != 0 or probe.exists(), operator.and_)
    if world.rank == 0:
        probe.unlink()
    return seen
