"""Exchanges of small values between ranks, along a tree: a rank has messages for its parent and its children alone.

So a rank needs ``FAN_OUT + 1`` connections for any number of ranks, and an exchange goes up and down a tree of that
many children each. The values of the ranks are merged on their way up, always in the same order, and the first rank's
answer goes down: all ranks get the same bits.

The messages go from rank to rank through the default process group, each tree's with a tag of its own: trees form no
groups, and threads may use different trees at the same time.
"""

from __future__ import annotations

import contextlib
import functools
import operator
import pickle
import struct
import time
import zlib
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from datetime import timedelta
from typing import Any, Generic, NamedTuple, TypeVar

import torch
import torch.distributed as dist

T = TypeVar("T")

FAN_OUT = 16
_STEP_TIMEOUT = timedelta(minutes=10)
_FIRST = 512  # bytes of the first message of a value: its length, and as much of it as fits
_LENGTH = struct.Struct("<q")
_LOST, _LATE = -1, -2  # in place of the length: the sender has lost one of its neighbours, or waited in vain
_WORDS = {
    _LOST: "another rank says that it has lost the connection to one of its own",
    _LATE: "another rank says that it timed out",
}


class Tree:
    """Of ``ranks``, which exchange values for one ``purpose``. For one rank alone nothing is sent.

    All methods are collectives: the ranks of the tree call them in the same order, from one thread at a time. They
    raise RuntimeError, on all ranks, if one has left or does not come within ``timeout``. Then the tree is of no use
    any more.
    """

    def __init__(self, ranks: Sequence[int], rank: int, purpose: str, timeout: timedelta) -> None:
        """A collective: all ranks of the process group make their trees of a purpose in the same order."""
        self.ranks = ranks
        self.rank = rank  # of this process
        self.timeout = timeout
        trees = _of_process()
        trees.made[purpose] += 1
        self._tag = zlib.crc32(f"rankup {purpose} {trees.made[purpose]}".encode()) >> 1
        place = ranks.index(rank)
        self.parent = ranks[(place - 1) // FAN_OUT] if place else None
        self.children = ranks[FAN_OUT * place + 1 : FAN_OUT * (place + 1) + 1]
        self.failure: Exception | None = None  # the first one, for which the tree is of no use any more
        self._group: Any = trees.group if len(ranks) > 1 else None
        self._last_words: list[dist.Work] = []  # a message is sent only while somebody holds it

    @property
    def leads(self) -> bool:
        """Whether this process has the first of the ranks."""
        return self.parent is None

    def exchange(self, mine: T, merge: Callable[[T, T], T]) -> T:
        """What ``merge`` makes of all ranks' values, on all of them."""
        return self.begin(mine, merge).wait()

    def begin(
        self, mine: T, merge: Callable[[T, T], T], answer: Callable[[T], Any] = lambda merged: merged
    ) -> Exchange[T]:
        """``exchange`` whose value is there after ``wait()``, for which other ranks may wait: call it before the next
        exchange. All ranks get what ``answer`` makes of the value on the leading one."""
        return Exchange(self, mine, merge, answer)

    def barrier(self) -> None:
        """Return when all ranks have called it."""
        self.exchange(None, lambda one, other: None)

    def gather(self, value: T) -> list[T]:
        """The value of each rank, in the order of the ranks, on all of them; anything that can be pickled."""
        found = self.exchange({self.rank: pickle.dumps(value)}, operator.or_)
        return [_value(found[rank]) for rank in self.ranks]

    def collect(self, value: T | None) -> list[tuple[int, T]]:
        """(rank, value) of each rank whose value is not None, by rank, on the leading rank; [] on all others."""
        found: dict[int, bytes] = {}
        mine = {} if value is None else {self.rank: pickle.dumps(value)}
        self.begin(mine, operator.or_, found.update).wait()
        return [(rank, _value(found[rank])) for rank in sorted(found)]

    def broadcast(self, value: T, source: int | None = None) -> T:
        """``value`` of the rank ``source``, by default the leading one, on all."""
        sends = self.leads if source is None else self.rank == source
        (told,) = self.exchange([pickle.dumps(value)] if sends else [], operator.add)
        sent: T = _value(told)
        return sent

    # ------------------------------------------------------------------ for Exchange

    def send(self, rank: int, content: bytes, reason: int | None = None) -> list[dist.Work]:
        """Send ``content``, in one message or, if it is long, in two. With ``reason``: an error code in its place."""
        first = bytearray(_FIRST)
        _LENGTH.pack_into(first, 0, len(content) if reason is None else reason)
        fits = content[: _FIRST - _LENGTH.size]
        first[_LENGTH.size : _LENGTH.size + len(fits)] = fits
        rest = bytearray(content[len(fits) :])
        return [
            self._group.send([torch.frombuffer(part, dtype=torch.uint8)], rank, self._tag)
            for part in (first, rest)
            if part
        ]

    def receive(self, rank: int) -> _Incoming:
        return _Incoming(rank, *self._post(rank, _FIRST))

    def read(self, incoming: _Incoming) -> bytes:
        self.finish([incoming.work])
        (length,) = _LENGTH.unpack_from(incoming.first)
        if length < 0:
            raise RuntimeError(_WORDS[length])
        content = bytes(incoming.first[_LENGTH.size : _LENGTH.size + length])
        if length > len(content):
            rest, work = self._post(incoming.rank, length - len(content))
            self.finish([work])
            content += rest
        return content

    def finish(self, works: list[dist.Work]) -> None:
        for work in works:
            work.wait(self.timeout)

    def fail(self, failure: Exception, reason: int, waiting: list[int]) -> None:
        """Tell the ranks that are ``waiting`` for this one, as far as they can be reached."""
        self.failure = failure
        for rank in waiting:
            with contextlib.suppress(RuntimeError):
                self._last_words += self.send(rank, b"", reason)

    def _post(self, rank: int, size: int) -> tuple[bytearray, dist.Work]:
        into = bytearray(size)
        return into, self._group.recv([torch.frombuffer(into, dtype=torch.uint8)], rank, self._tag)


class _Incoming(NamedTuple):
    rank: int
    first: bytearray
    work: dist.Work


class Exchange(Generic[T]):
    """An exchange of a tree, in progress."""

    def __init__(
        self, tree: Tree, mine: Any, merge: Callable[[Any, Any], Any], answer: Callable[[Any], Any]
    ) -> None:
        self._tree = tree
        self._mine, self._merge, self._answer = mine, merge, answer
        self._began = time.monotonic()
        self._told = pickle.dumps(None)  # what the first rank answers
        self._error: Exception | None = None
        self._done = False
        # The ranks that wait for a message of this one.
        self._waiting = [*tree.children] if tree.parent is None else [tree.parent, *tree.children]
        self._guarded(self._post)

    def wait(self) -> T:
        if not self._done and self._error is None:
            self._guarded(self._complete)
        self._done = True
        if self._error is not None:
            raise self._error
        told: T = _value(self._told)
        return told

    def _guarded(self, do: Callable[[], None]) -> None:
        """After an error the ranks that wait for this one get to know it now, and not when this process ends."""
        try:
            do()
        except Exception as error:
            # gloo closes all connections of a rank that has timed out, mostly before one that began later times out.
            late = time.monotonic() - self._began > 0.75 * self._tree.timeout.total_seconds()
            self._error = RuntimeError(f"timed out: {error}") if late else error
            reason = _LATE if "imed out" in str(self._error) else _LOST
            self._tree.fail(self._error, reason, self._waiting)

    def _post(self) -> None:
        """What need not wait for other ranks."""
        tree = self._tree
        if tree.failure is not None:
            raise tree.failure
        self._from_children = [tree.receive(child) for child in tree.children]
        if tree.parent is not None:
            self._from_parent = tree.receive(tree.parent)
            if not tree.children:
                self._to_parent = self._send(tree.parent, pickle.dumps(self._mine))

    def _complete(self) -> None:
        tree, merged = self._tree, self._mine
        for incoming in self._from_children:
            merged = self._merge(merged, _value(tree.read(incoming)))
        if tree.parent is None:
            self._told = pickle.dumps(self._answer(merged))
        else:
            if tree.children:
                self._to_parent = self._send(tree.parent, pickle.dumps(merged))
            tree.finish(self._to_parent)
            self._told = tree.read(self._from_parent)
        tree.finish([work for child in tree.children for work in self._send(child, self._told)])

    def _send(self, rank: int, content: bytes) -> list[dist.Work]:
        self._waiting.remove(rank)
        return self._tree.send(rank, content)


def of_all_ranks(purpose: str, timeout: timedelta) -> Tree:
    """The tree of all ranks for ``purpose``, which is made once for each default group; of one process without one."""
    trees = _of_process()
    if purpose not in trees.shared:
        rank, size = (dist.get_rank(), dist.get_world_size()) if trees.default is not None else (0, 1)
        trees.shared[purpose] = Tree(range(size), rank, purpose, timeout)
    return trees.shared[purpose]


def on_some_rank(flags: Iterable[bool]) -> list[bool]:
    """Of each flag of a strategy's step, whether it is set on some rank. A collective; all ranks have as many.

    It has a tree of its own: a script may ask for a sum on one rank while another one is in its step, and these must
    not meet.
    """
    return of_all_ranks("strategy", _STEP_TIMEOUT).exchange(
        list(flags), lambda one, other: list(map(operator.or_, one, other))
    )


class _Trees:
    """Of this process, for one default group."""

    def __init__(self, default: dist.ProcessGroup | None) -> None:
        self.default = default
        self.made: Counter[str] = Counter()  # how many, by purpose
        self.shared: dict[str, Tree] = {}  # by purpose

    @functools.cached_property
    def group(self) -> Any:
        """The default group, or a gloo group of all ranks if the script has formed one for GPUs alone."""
        return self.default if "cpu:gloo" in dist.get_backend_config() else dist.new_group(backend="gloo")


_trees: _Trees | None = None


def _of_process() -> _Trees:
    global _trees
    default = dist.group.WORLD if dist.is_initialized() else None
    if _trees is None or _trees.default is not default:
        _trees = _Trees(default)
    return _trees


def _value(content: bytes | bytearray) -> Any:
    return pickle.loads(content)  # noqa: S301  # of another rank of this job
