"""The ranks that save together. They have gloo groups of their own, apart from the training's collectives.

What all ranks need is reduced to a few numbers; what one rank needs goes to that rank alone. So the bytes that a rank
handles do not grow with the number of ranks, except on the first one, which hears once from each.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any, TypeVar

import torch
import torch.distributed as dist

from rankup.core.files import make_folder
from rankup.errors import RankupError
from rankup.snapshots.layout import node_token
from rankup.world import World

T = TypeVar("T")
MAX, SUM = dist.ReduceOp.MAX, dist.ReduceOp.SUM


@dataclass(frozen=True)
class RankGroup:
    """Ranks that exchange something. ``group`` is None for one rank alone, which needs no messages."""

    ranks: Sequence[int]
    rank: int  # this one
    group: dist.ProcessGroup | None

    @property
    def leads(self) -> bool:
        return self.rank == self.ranks[0]

    def numbers(self, number: int) -> list[int]:
        """The number of each rank, on all of them."""
        if self.group is None:
            return [number]
        found = [torch.zeros(1, dtype=torch.int64) for _ in self.ranks]
        dist.all_gather(found, torch.tensor([number]), group=self.group)
        return [int(each) for each in found]

    def collect(self, value: T | None) -> list[tuple[int, T]]:
        """(rank, value) of each rank whose value is not None, by rank, on the leading rank; [] on all others."""
        if self.group is None:
            return [] if value is None else [(self.rank, value)]
        first, some = self.ranks[0], torch.tensor([value is not None])
        others = [torch.zeros_like(some) for _ in self.ranks] if self.leads else None
        dist.gather(some, others, dst=first, group=self.group)
        if others is None:
            if value is not None:
                dist.send_object_list([value], dst=first, group=self.group)
            return []
        found: list[tuple[int, Any]] = []
        for rank, has in zip(self.ranks, others, strict=True):
            told = [value]
            if has and rank != self.rank:
                dist.recv_object_list(told, src=rank, group=self.group)
            if has:
                found.append((rank, told[0]))
        return found

    def broadcast(self, value: T, source: int | None = None) -> T:
        """``value`` of the rank ``source``, by default the leading one, on all."""
        if self.group is None:
            return value
        told = [value]
        dist.broadcast_object_list(told, src=self.ranks[0] if source is None else source, group=self.group)
        return told[0]


class Peers:
    """Made on all ranks: with several, it forms a process group, and one more on each of several nodes."""

    def __init__(self, world: World, timeout: timedelta = timedelta(hours=1)) -> None:
        """``timeout`` is how long a rank may write while the others wait."""
        self.world = world
        alone = RankGroup((world.rank,), world.rank, None)
        self.everyone = self.node = alone
        if world.world_size > 1:
            group = dist.new_group(backend="gloo", timeout=timeout)
            self.everyone = self.node = RankGroup(range(world.world_size), world.rank, group)
        if world.num_nodes > 1:
            nodes = self.everyone.numbers(world.node_rank)
            mates = [rank for rank, node in enumerate(nodes) if node == world.node_rank]
            self.node = alone
            if len(mates) > 1:
                group = dist.new_group(mates, backend="gloo", timeout=timeout, use_local_synchronization=True)
                self.node = RankGroup(mates, world.rank, group)

    def around(self, shared: bool) -> RankGroup:
        """The ranks that write into one directory. The leading one makes and renames directories."""
        return self.everyone if shared else self.node

    def agree(
        self, make: Callable[[], Sequence[int] | None], *, numbers: int = 0, op: dist.ReduceOp.RedOpType = MAX
    ) -> list[int]:
        """Call ``make()`` on each rank, and reduce the ``numbers`` that it returns over the ranks. If it fails on some
        rank, the error of the lowest one is raised on all: no rank waits for one that has failed."""
        failure: Exception | None = None
        mine: Sequence[int] = ()
        try:
            mine = make() or ()
        except Exception as error:
            if self.everyone.group is None:
                raise
            failure = error
        if self.everyone.group is None:
            return list(mine)
        message = torch.zeros(1 + numbers, dtype=torch.int64)
        message[0] = failure is not None
        if failure is None and numbers:
            message[1:] = torch.tensor(mine)
        dist.all_reduce(message, op, group=self.everyone.group)
        failed, *reduced = (int(each) for each in message.tolist())
        if failed:
            self._raise(failure)
        return reduced

    def _raise(self, failure: Exception | None) -> None:
        rank, end = self.world.rank, self.world.world_size
        first = torch.tensor([end if failure is None else rank])
        dist.all_reduce(first, dist.ReduceOp.MIN, group=self.everyone.group)
        mine = None if failure is None else _as_rankup_error(failure, rank).as_dict()
        told = self.everyone.broadcast(mine, int(first))
        if failure is not None and rank == int(first):
            raise failure
        assert told is not None
        raise RankupError.from_dict(told)

    def union(self, make: Callable[[], Iterable[T]]) -> set[T]:
        """What ``make()`` found on any rank, on all. If it fails on one, the error is raised on all."""
        found: list[T] = []
        self.agree(lambda: found.extend(make()))
        parts = self.everyone.collect(found or None)
        return self.everyone.broadcast({each for _, part in parts for each in part})

    def shares(self, root: Path) -> bool:
        """Make ``root`` and find out whether all nodes see the same directory there. A collective.

        Raises RankupError if some nodes share it and others do not: two of them would write into one directory.
        """
        world, first = self.world, self.node.leads

        def begin() -> list[int]:
            if first:
                make_folder(root, purpose="snapshots directory")
            number = 1 + secrets.randbits(32) if world.is_main and world.num_nodes > 1 else 0
            if number:
                node_token(root, number, 0).touch()
            return [number]

        (number,) = self.agree(begin, numbers=1)
        if world.num_nodes == 1:
            return True
        token, mine = (node_token(root, number, node) for node in (0, world.node_rank))
        (seen,) = self.agree(lambda: [first and token.exists()], numbers=1, op=SUM)
        if seen == 1:
            # Only the first node sees its token. Others may still share a directory with each other.
            self.agree(lambda: mine.touch() if first else None)
            tokens = node_token(root, number, "*").name
            (most,) = self.agree(lambda: [first and len(list(root.glob(tokens)))], numbers=1)
            seen = 1 if most == 1 else 0
        self.agree(lambda: mine.unlink(missing_ok=True) if first else None)
        if seen == world.num_nodes:
            return True
        if seen == 1:
            return False
        raise RankupError(
            "partly-shared",
            f"some nodes share the directory {str(root)!r}, others have a local one",
            hint="use a directory that all nodes share, or one that is local on every node",
        )


def _as_rankup_error(error: Exception, rank: int) -> RankupError:
    if isinstance(error, RankupError):
        return error
    return RankupError(
        "peer-failed",
        f"rank {rank} failed during a collective snapshot operation: {type(error).__name__}: {error}",
        hint=f"see the log of rank {rank}",
        exit_code=1,
    )
