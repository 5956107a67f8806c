"""The ranks that save together. They tell each other along trees of their own, since saves run in another thread.

What all ranks need is reduced to a few numbers; what one rank needs goes to that rank alone. So the bytes that a rank
handles do not grow with the number of ranks, except on the way to the first one.
"""

from __future__ import annotations

import operator
import secrets
from collections.abc import Callable, Iterable, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any, TypeVar

from rankup.core.files import make_folder
from rankup.errors import RankupError
from rankup.messages.tree import Tree
from rankup.snapshots.layout import node_token
from rankup.world import World

T = TypeVar("T")


def most(one: Sequence[int], other: Sequence[int]) -> list[int]:
    return list(map(max, one, other))


def total(one: Sequence[int], other: Sequence[int]) -> list[int]:
    return list(map(operator.add, one, other))


class Peers:
    """Made on all ranks."""

    def __init__(self, world: World, timeout: timedelta = timedelta(hours=1)) -> None:
        """``timeout`` is how long a rank may write while the others wait."""
        self.world = world
        self.everyone = self.node = Tree(range(world.world_size), world.rank, "snapshots", timeout)
        if world.num_nodes > 1:
            nodes = self.everyone.gather(world.node_rank)
            mates = [rank for rank, node in enumerate(nodes) if node == world.node_rank]
            self.node = Tree(mates, world.rank, "snapshots of a node", timeout)

    def around(self, shared: bool) -> Tree:
        """The ranks that write into one directory. The leading one makes and renames directories."""
        return self.everyone if shared else self.node

    def agree(self, make: Callable[[], T], merge: Callable[[T, T], T]) -> T:
        """What ``merge`` makes of the answers of ``make()`` on all ranks. If it fails on some rank, the error of the
        lowest one is raised on all: no rank waits for one that has failed."""
        here, failure = self.world.rank, None
        answer: T | None = None
        told: tuple[int, dict[str, Any]] | None = None
        try:
            answer = make()
        except Exception as error:
            failure, told = error, (here, _as_rankup_error(error, here).as_dict())

        def merged(one: _Answer[T], other: _Answer[T]) -> _Answer[T]:
            errors = [error for error, _ in (one, other) if error is not None]
            return (min(errors), None) if errors else (None, merge(one[1], other[1]))  # type: ignore[arg-type]

        first, answer = self.everyone.exchange((told, answer), merged)
        if first is None:
            return answer  # type: ignore[return-value]
        if failure is not None and first[0] == here:
            raise failure
        raise RankupError.of_rank(*first)

    def do(self, each: Callable[[], object]) -> None:
        """Call ``each()`` on each rank. If it fails on one, the error is raised on all."""

        def done() -> None:
            each()

        self.agree(done, lambda one, other: None)

    def union(self, make: Callable[[], Iterable[T]]) -> set[T]:
        """What ``make()`` found on any rank, on all. If it fails on one, the error is raised on all."""
        return self.agree(lambda: set(make()), operator.or_)

    def shares(self, root: Path) -> bool:
        """Make ``root`` and find out whether all nodes see the same directory there. A collective.

        Raises RankupError if some nodes share it and others do not: two of them would write into one directory.
        """
        world, first = self.world, self.node.leads
        number = self.everyone.broadcast(secrets.randbits(32))
        token = node_token(root, number)

        def made() -> int:
            if not first:
                return 0
            make_folder(root, purpose="snapshots directory")
            return _made(token) if world.num_nodes > 1 else 0

        tokens = self.agree(made, operator.add)
        self.do(lambda: token.unlink(missing_ok=True) if first else None)
        # Where all see the same directory, one node has made the token, and the others have found it.
        if tokens <= 1:
            return True
        if tokens == world.num_nodes:
            return False
        raise RankupError(
            "partly-shared",
            f"some nodes share the directory {str(root)!r}, others have a local one",
            hint="use a directory that all nodes share, or one that is local on every node",
        )


# The lowest rank that has failed, with its error; or what the ranks have found.
_Answer = tuple[tuple[int, dict[str, Any]] | None, T | None]


def _made(path: Path) -> bool:
    """Whether the file was not there."""
    try:
        path.touch(exist_ok=False)
    except FileExistsError:
        return False
    return True


def _as_rankup_error(error: Exception, rank: int) -> RankupError:
    if isinstance(error, RankupError):
        return error
    return RankupError(
        "peer-failed",
        f"rank {rank} failed during a collective snapshot operation: {type(error).__name__}: {error}",
        hint=f"see the log of rank {rank}",
        exit_code=1,
    )
