"""The other ranks of a large run, as one process sees them: process groups and a store that answer for them, and count.

This process is one rank of ``world_size``, and runs the real code. No other rank exists. What the others send follows
from what this one sends (``Others``), so that all agreements succeed as they do among ranks that are alike. The answers
have the true number, shape and size: a gather of W ranks fills W tensors, and rank 0 unpickles a message of each rank
that sends it one. The time in here stands for the network, and is kept apart.

Rank 0 answers by rule and writes down what its groups have answered. Rank 1 is in some of the same groups, and gets
from ``written`` what rank 0 has sent or found there.
"""

from __future__ import annotations

import copy
import dataclasses
import pickle
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from typing import Any, ClassVar

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import _create_work_from_future
from torch.futures import Future

from rankup.snapshots.layout import states_file

BACKEND = "pretended"
#: What a group of gloo costs beside a socket for each other rank (measured with torch 2.13: world size + 3).
GLOO_DESCRIPTORS = 3

Written = dict[str, list[tuple[str, Any]]]  # group → (operation, its answer), in order


class Tally:
    """What was counted since the process began. ``threads``: Python's name of a thread → what to call it."""

    threads: ClassVar = {"MainThread": "main", "rankup-snapshot": "main", "rankup-waiting": "watch"}

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self.away = 0.0  # CPU seconds in which this process played the network and the other ranks
        self._inside = threading.local()

    def add(self, what: str, number: int = 1) -> None:
        thread = self.threads.get(threading.current_thread().name, "main")
        self.counts[what if thread == "main" else f"{thread}: {what}"] += number

    @contextmanager
    def network(self) -> Iterator[None]:
        """Around what is not the work of this rank."""
        if getattr(self._inside, "now", False):
            yield
            return
        self._inside.now, began = True, time.thread_time()
        try:
            yield
        finally:
            self._inside.now = False
            self.away += time.thread_time() - began


@dataclasses.dataclass
class Others:
    """The other ranks. ``saving``: whether a save is in progress, at which the first rank of each node has something to
    tell. ``answers``: what rank 0's groups have answered, if this is another rank."""

    world_size: int
    per_node: int
    rank: int
    answers: Written = dataclasses.field(default_factory=dict)
    written: Written = dataclasses.field(default_factory=dict)
    saving: bool = False

    def node(self, rank: int) -> int:
        return rank // self.per_node

    def summed(self, ranks: Sequence[int], message: torch.Tensor) -> None:
        """Make ``message`` the sum over ``ranks``, each of which sends it, and stands for the ranks up to the next one:
        the first ranks of some nodes may add up what their nodes have sent.

        Numbers of the control group (float64) and gradients: all send the same. Whole numbers are those of a save: of
        a few, only the first rank of each node sends any; many are a comparison, which is zero among ranks that agree.
        """
        step = ranks[1] - ranks[0] if len(ranks) > 1 else 1
        stood_for = min(len(ranks) * step, self.world_size - ranks[0])
        if message.is_floating_point() or message.dtype == torch.uint8:
            message.mul_(stood_for / step)
        elif message.numel() > 4:
            message.zero_()
        else:
            message.mul_(max(stood_for, self.per_node)).floor_divide_(max(step, self.per_node))

    def number(self, rank: int, mine: torch.Tensor) -> torch.Tensor:
        """What ``rank`` adds to a gather to all. A zero of rank 0 is its node's number; anything else is the same."""
        if mine.dtype == torch.int64 and mine.numel() == 1 and int(mine) == self.node(self.rank):
            return torch.full_like(mine, self.node(rank))
        return mine

    def has_something(self, rank: int, ranks: Sequence[int]) -> bool:
        """Whether ``rank`` has something for the first one of ``ranks``, which has something itself."""
        within_a_node = self.node(ranks[0]) == self.node(ranks[-1])
        return self.saving and (within_a_node or rank % self.per_node == 0)

    def told(self, mine: Any, rank: int) -> Any:
        """The object that ``rank`` sends where this rank would send ``mine``: what it has written for a snapshot names
        the states of its node."""
        if not (dataclasses.is_dataclass(mine) and hasattr(mine, "states") and hasattr(mine, "files")):
            return mine
        node, here = self.node(rank), states_file(self.node(self.rank))
        states = {
            other + rank - self.rank: type(saved)(states_file(node), *saved[1:])
            for other, saved in mine.states.items()
        }
        made = copy.copy(mine)
        made.files, made.states = {states_file(node): mine.files[here]}, states
        made.values = {}
        if made.tensors is not None:
            made.tensors = {}
        return made


class Group(dist.ProcessGroup):
    """Of ``ranks``, one of which is this process."""

    def __init__(self, ranks: Sequence[int], name: str, others: Others, tally: Tally) -> None:
        super().__init__(ranks.index(others.rank), len(ranks))
        self.ranks = ranks
        self._name, self._others, self._tally = name, others, tally
        self._inbox: list[torch.Tensor] = []
        self._next = 0

    def getBackendName(self) -> str:
        return BACKEND

    # ------------------------------------------------------------- operations

    def allreduce(self, tensors: list[torch.Tensor], opts: Any = None) -> Any:
        (tensor,) = tensors
        with self._counted("all-reduce", given=_bytes(tensor), got=_bytes(tensor)):
            adds = opts is None or opts.reduceOp == dist.ReduceOp.SUM
            self._answer(
                "all-reduce", tensor, lambda: self._others.summed(self.ranks, tensor) if adds else None
            )
        return _done(tensors)

    def reduce(self, tensors: list[torch.Tensor], opts: Any) -> Any:
        (tensor,) = tensors
        root = opts.rootRank == self.rank()
        with self._counted("reduce", given=_bytes(tensor), got=_bytes(tensor) * root):
            if root and opts.reduceOp == dist.ReduceOp.SUM:
                self._others.summed(self.ranks, tensor)
        return _done(tensors)

    def broadcast(self, tensors: list[torch.Tensor], opts: Any) -> Any:
        root = opts.rootRank == self.rank()
        for tensor in tensors:
            with self._counted("broadcast", given=_bytes(tensor) * root, got=_bytes(tensor) * (not root)):
                self._answer("broadcast", tensor, lambda: None)
        return _done(tensors)

    def allgather(
        self, outputs: list[list[torch.Tensor]], inputs: list[torch.Tensor], opts: Any = None
    ) -> Any:
        (found,), (mine,) = outputs, inputs
        with self._counted("all-gather", given=_bytes(mine), got=sum(map(_bytes, found))):
            for rank, tensor in zip(self.ranks, found, strict=True):
                tensor.copy_(self._others.number(rank, mine))
        return _done(outputs)

    def gather(self, outputs: list[list[torch.Tensor]], inputs: list[torch.Tensor], opts: Any) -> Any:
        (mine,) = inputs
        found = outputs[0] if outputs else []
        with self._counted("gather", given=_bytes(mine), got=sum(map(_bytes, found))):
            for rank, tensor in zip(self.ranks, found, strict=False):
                asks = mine.dtype == torch.bool and rank != self._others.rank
                tensor.copy_(mine & self._others.has_something(rank, self.ranks) if asks else mine)
        return _done(outputs)

    def send(self, tensors: list[torch.Tensor], dst: int, tag: int = 0) -> Any:
        with self._counted("send", given=sum(map(_bytes, tensors))):
            return _done(tensors)

    def recv(self, tensors: list[torch.Tensor], src: int, tag: int = 0) -> Any:
        with self._counted("receive", got=sum(map(_bytes, tensors))):
            for tensor in tensors:
                tensor.copy_(self._inbox.pop(0))
        return _done(tensors)

    def barrier(self, opts: Any = None) -> Any:
        with self._counted("barrier"):
            return _done([])

    def arrives(self, message: Any) -> None:
        """``message`` is what ``dist.recv_object_list`` receives next."""
        content = torch.frombuffer(bytearray(pickle.dumps(message)), dtype=torch.uint8)
        self._inbox += [torch.tensor([content.numel()]), content]

    # ----------------------------------------------------------------- inside

    @contextmanager
    def _counted(self, what: str, *, given: int = 0, got: int = 0) -> Iterator[None]:
        self._tally.add("collectives")
        self._tally.add(what)
        self._tally.add("bytes given", given)
        self._tally.add("bytes got", got)
        with self._tally.network():
            yield

    def _answer(self, what: str, tensor: torch.Tensor, rule: Callable[[], None]) -> None:
        """Change ``tensor`` to what rank 0 has found in the same place, or by ``rule``."""
        known = self._others.answers.get(self._name, ())
        if self._next < len(known):
            operation, answer = known[self._next]
            if operation != what or answer.shape != tensor.shape:
                raise RuntimeError(
                    f"rank 0 was in {operation} {answer.shape}, and this one in {what} {tensor.shape}"
                )
            tensor.copy_(answer)
        else:
            rule()
        self._next += 1
        self._others.written.setdefault(self._name, []).append((what, tensor.detach().clone()))


class SharedStore(dist.Store):
    """The store of all ranks: what this one sets is there at once, and each of the others adds what this one adds."""

    def __init__(self, world_size: int, tally: Tally, content: dict[str, bytes]) -> None:
        super().__init__()
        self.content = content
        self._world_size, self._tally = world_size, tally

    def set(self, key: str, value: str | bytes) -> None:
        with self._counted("set"):
            self.content[key] = value if isinstance(value, bytes) else value.encode()

    def get(self, key: str) -> bytes:
        with self._counted("get"):
            if key not in self.content:
                raise RuntimeError(f"no rank has set {key}")
            return self.content[key]

    def add(self, key: str, value: int) -> int:
        with self._counted("add"):
            total = int(self.content.get(key, b"0")) + value * self._world_size
            self.content[key] = str(total).encode()
            return total

    def check(self, keys: list[str]) -> bool:
        with self._counted("check"):
            return all(key in self.content for key in keys)

    def wait(self, keys: list[str], timeout: timedelta | None = None) -> None:
        with self._counted("wait"):
            if missing := [key for key in keys if key not in self.content]:
                raise RuntimeError(f"no rank has set {missing[0]}")

    def delete_key(self, key: str) -> bool:
        with self._counted("delete"):
            return self.content.pop(key, None) is not None

    def set_timeout(self, timeout: timedelta) -> None:
        pass

    @contextmanager
    def _counted(self, what: str) -> Iterator[None]:
        self._tally.add("store operations")
        self._tally.add(f"store {what}")
        with self._tally.network():
            yield


class PretendedRanks:
    """Put in the place of torch's functions until the process ends. The environment must be that of torchrun."""

    def __init__(self, others: Others, tally: Tally) -> None:
        self.groups: list[Group] = []
        self._others, self._tally = others, tally
        self._store = SharedStore(others.world_size, tally, {})
        if BACKEND.upper() not in dist.Backend._plugins:
            dist.Backend.register_backend(BACKEND, self._group, extended_api=True, devices=["cpu"])
        self._begin, self._new, self._receive = (
            dist.init_process_group,
            dist.new_group,
            dist.recv_object_list,
        )
        dist.rendezvous = self._rendezvous  # type: ignore[attr-defined]
        dist.init_process_group = self._init_process_group
        dist.new_group = self._new_group
        dist.recv_object_list = self._recv_object_list

    def descriptors(self) -> int:
        """That gloo would need for the groups beside the default one, by its law: it connects all ranks of a group."""
        return sum(len(group.ranks) - 1 + GLOO_DESCRIPTORS for group in self.groups[1:])

    def _group(self, options: Any, _: Any) -> Group:
        ranks = list(options.global_ranks_in_group) or range(self._others.world_size)
        same = sum(list(group.ranks) == list(ranks) for group in self.groups)
        name = f"{ranks[0]}-{ranks[-1]} of {len(ranks)}, {same}"
        self.groups.append(Group(ranks, name, self._others, self._tally))
        return self.groups[-1]

    def _rendezvous(self, url: str, **options: Any) -> Iterator[tuple[SharedStore, int, int]]:
        return iter([(self._store, self._others.rank, self._others.world_size)])

    def _init_process_group(self, backend: str, **options: Any) -> None:
        if "store" not in options:
            options |= {
                "store": self._store,
                "rank": self._others.rank,
                "world_size": self._others.world_size,
            }
        self._begin(BACKEND, **options)

    def _new_group(self, *args: Any, **options: Any) -> Any:
        return self._new(*args, **{**options, "backend": BACKEND})

    def _recv_object_list(self, told: list[Any], src: int, group: Any = None, **options: Any) -> Any:
        with self._tally.network():
            group.arrives(self._others.told(told[0], src))
        return self._receive(told, src=src, group=group, **options)


def _bytes(tensor: torch.Tensor) -> int:
    return tensor.numel() * tensor.element_size()


def _done(result: Any) -> Any:
    future: Future[Any] = Future()
    future.set_result(result)
    return _create_work_from_future(future)
