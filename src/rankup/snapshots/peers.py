"""The ranks that save together. They have a gloo group of their own, apart from the training's collectives."""

from __future__ import annotations

import contextlib
import secrets
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any, TypeVar

import torch.distributed as dist

from rankup.core.files import make_folder
from rankup.errors import RankupError
from rankup.world import World

T = TypeVar("T")


class Peers:
    """Made on all ranks: with several, it forms a process group."""

    def __init__(self, world: World, timeout: timedelta = timedelta(hours=1)) -> None:
        """``timeout`` is how long a rank may write while the others wait."""
        self.world = world
        self._group = dist.new_group(backend="gloo", timeout=timeout) if world.world_size > 1 else None

    def leads(self, shared: bool) -> bool:
        """Whether this rank makes and renames directories: rank 0, or one per node without a ``shared`` one."""
        return self.world.rank == 0 if shared else self.world.local_rank == 0

    def gather_or_raise(self, make: Callable[[], T]) -> list[T]:
        """The result of ``make()`` on each rank, by rank. If it fails on one rank, the error is raised on all: no rank
        waits for one that has failed."""
        try:
            mine: tuple[T | None, dict[str, Any] | None] = (make(), None)
        except Exception as error:
            if self._group is None:
                raise
            failure = error
            mine = (None, _as_rankup_error(error, self.world.rank).as_dict())
        if self._group is None:
            return [mine[0]]  # type: ignore[list-item]  # make() succeeded
        everyone: list[Any] = [None] * self.world.world_size
        dist.all_gather_object(everyone, mine, group=self._group)
        for rank, (_, error_dict) in enumerate(everyone):
            if error_dict is not None:
                if rank == self.world.rank:
                    raise failure
                raise RankupError.from_dict(error_dict)
        return [value for value, _ in everyone]

    def shares(self, root: Path) -> bool:
        """Make ``root`` and find out whether all nodes see the same directory there. A collective.

        Raises RankupError if some nodes share it and others do not: two of them would write into one directory.
        """
        first = self.world.local_rank == 0
        self.gather_or_raise(lambda: make_folder(root, purpose="snapshots directory") if first else None)
        if self.world.num_nodes == 1:
            return True
        token = root / f".node-{self.world.node_rank}-{secrets.token_hex(4)}"
        names = self.gather_or_raise(lambda: _touch(token) if first else None)
        wanted = {name for name in names if name}
        seen = self.gather_or_raise(lambda: sum((root / name).exists() for name in wanted) if first else None)
        counts = {count for count in seen if count is not None}
        self.gather_or_raise(lambda: _remove(token) if first else None)
        if counts == {len(wanted)}:
            return True
        if counts == {1}:
            return False
        raise RankupError(
            "partly-shared",
            f"some nodes share the directory {str(root)!r}, others have a local one",
            hint="use a directory that all nodes share, or one that is local on every node",
        )


def _touch(token: Path) -> str:
    token.touch()
    return token.name


def _remove(token: Path) -> None:
    with contextlib.suppress(OSError):
        token.unlink()


def _as_rankup_error(error: Exception, rank: int) -> RankupError:
    if isinstance(error, RankupError):
        return error
    return RankupError(
        "peer-failed",
        f"rank {rank} failed during a collective snapshot operation: {type(error).__name__}: {error}",
        hint=f"see the log of rank {rank}",
        exit_code=1,
    )
