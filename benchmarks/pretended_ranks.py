"""The other ranks of a large run, as one process sees them: process groups and a store that answer for them, and count.

This process is one rank of ``world_size``, and runs the real code. No other rank exists. What the others send follows
from what rank 0 sends (``Others``), so that all agreements succeed as they do among ranks that are alike. The messages
have the true number and size, and this rank unpickles and merges them as it would among real ranks. The time in here
stands for the network and the other ranks, and is kept apart.

Rank 0 runs first, and writes down what it has sent and answered. Rank 1 gets its answers from there (``written``).
"""

from __future__ import annotations

import dataclasses
import pickle
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from typing import Any, ClassVar

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import _create_work_from_future
from torch.futures import Future

from rankup.messages import tree
from rankup.snapshots.alike import SUMS
from rankup.snapshots.layout import states_file

BACKEND = "pretended"
_SUM = 1 << 40  # what the sums of a comparison are counted by

# Group → (operation, its answer), in order; tree → (rank 0's value, its answer), each pickled.
Written = dict[str, list[tuple[Any, Any]]]
_written: Written = {}  # by this process


def written() -> Written:
    """By this process. A function: what the training's module names would be state of the script, for its snapshots."""
    return _written


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
    """The other ranks. ``answers``: what rank 0 has written, if this is another rank."""

    world_size: int
    per_node: int
    rank: int
    answers: Written = dataclasses.field(default_factory=dict)

    def merged(self, ranks: Sequence[int], first: Any, merge: Callable[[Any, Any], Any]) -> Any:
        """What ``merge`` makes of the values of ``ranks``, without rank 0, which has ``first`` to tell."""
        like = self._alike(first)
        told = like[1] if isinstance(like, tuple) else like
        if isinstance(told, dict):
            entries = {rank: self._told(content, rank) for content in told.values() for rank in ranks}
            known = {rank: pickle.dumps(entry) for rank, entry in entries.items() if entry is not None}
            return (like[0], known) if isinstance(like, tuple) else known
        return _repeated(like, len(ranks), merge)

    def _alike(self, first: Any) -> Any:
        """The value of each other rank: the same, with exceptions."""
        if isinstance(first, tuple):
            agreed, value = first
            if agreed is None and isinstance(value, int):
                return None, 0  # whether a rank has made a file: rank 0 has
            return agreed, self._alike(value)
        if isinstance(first, set):
            return set()  # the leading rank has looked into a directory
        if isinstance(first, list) and first and isinstance(first[0], bytes):
            return []  # a broadcast
        if isinstance(first, list) and len(first) == SUMS:
            # Rank 0 has what makes the sum zero.
            share = pow(self.world_size - 1, -1, _SUM)
            return [-number * share % _SUM for number in first]
        return first

    def _told(self, content: bytes, rank: int) -> Any:
        """What ``rank`` tells where rank 0 tells ``content``: a zero is the number of a node. What is written for a
        snapshot names the states of a node; only the first rank of each node has some."""
        told = pickle.loads(content)  # noqa: S301
        node = rank // self.per_node
        if type(told) is int and told == 0:
            return node
        if not (dataclasses.is_dataclass(told) and hasattr(told, "states") and hasattr(told, "files")):
            return told
        if rank % self.per_node:
            return None
        told.states = {
            other + rank: type(saved)(states_file(node), *saved[1:]) for other, saved in told.states.items()
        }
        told.files = {states_file(node): told.files[states_file(0)]}
        told.values = {}
        if told.tensors is not None:
            told.tensors = {}
        return told


def _repeated(value: Any, times: int, merge: Callable[[Any, Any], Any]) -> Any:
    """``value``, merged with itself."""
    if times == 1:
        return value
    half = _repeated(value, times // 2, merge)
    return merge(merge(half, half), value) if times % 2 else merge(half, half)


class _Message:
    """One that is there."""

    def wait(self, timeout: timedelta) -> None:
        pass


class Group(dist.ProcessGroup):
    """Of ``ranks``, one of which is this process."""

    def __init__(self, ranks: Sequence[int], name: str, others: Others, tally: Tally) -> None:
        super().__init__(ranks.index(others.rank), len(ranks))
        self.ranks = ranks
        self._name, self._others, self._tally = name, others, tally
        self.neighbours: set[int] = set()  # that this rank has sent something, or that have sent it something
        self._inbox: defaultdict[tuple[int, int], list[bytes]] = defaultdict(list)  # by sender and tag
        self._next = 0

    def getBackendName(self) -> str:
        return BACKEND

    # ------------------------------------------------------------- operations

    def allreduce(self, tensors: list[torch.Tensor], opts: Any = None) -> Any:
        (tensor,) = tensors
        with self._counted("all-reduce", given=_bytes(tensor), got=_bytes(tensor)):
            adds = opts is None or opts.reduceOp == dist.ReduceOp.SUM
            self._answer("all-reduce", tensor, factor=len(self.ranks) if adds else 1)
        return _done(tensors)

    def broadcast(self, tensors: list[torch.Tensor], opts: Any) -> Any:
        root = opts.rootRank == self.rank()
        for tensor in tensors:
            with self._counted("broadcast", given=_bytes(tensor) * root, got=_bytes(tensor) * (not root)):
                self._answer("broadcast", tensor)
        return _done(tensors)

    def allgather(
        self, outputs: list[list[torch.Tensor]], inputs: list[torch.Tensor], opts: Any = None
    ) -> Any:
        (found,), (mine,) = outputs, inputs
        with self._counted("all-gather", given=_bytes(mine), got=sum(map(_bytes, found))):
            for tensor in found:
                tensor.copy_(mine)
        return _done(outputs)

    def send(self, tensors: list[torch.Tensor], dst: int, tag: int = 0) -> Any:
        with self._counted("send", given=sum(map(_bytes, tensors))):
            self.neighbours.add(dst)
        return _Message()

    def recv(self, tensors: list[torch.Tensor], src: int, tag: int = 0) -> Any:
        with self._counted("receive", got=sum(map(_bytes, tensors))):
            self.neighbours.add(src)
            for tensor in tensors:
                content = self._inbox[src, tag].pop(0)
                tensor[: len(content)] = torch.frombuffer(bytearray(content), dtype=torch.uint8)
        return _Message()

    def arrives(self, rank: int, tag: int, content: bytes) -> None:
        """``content`` is what ``rank`` sends next, as ``Tree.send`` sends it."""
        first = tree._FIRST
        framed = tree._LENGTH.pack(len(content)) + content
        self._inbox[rank, tag] += [part for part in (framed[:first], framed[first:]) if part]

    # ----------------------------------------------------------------- inside

    @contextmanager
    def _counted(self, what: str, *, given: int = 0, got: int = 0) -> Iterator[None]:
        self._tally.add("collectives")
        self._tally.add(what)
        self._tally.add("bytes given", given)
        self._tally.add("bytes got", got)
        with self._tally.network():
            yield

    def _answer(self, what: str, tensor: torch.Tensor, factor: int = 1) -> None:
        """Change ``tensor`` to what rank 0 has found in the same place; or multiply it."""
        known = self._others.answers.get(self._name, ())
        if self._next < len(known):
            operation, answer = known[self._next]
            if operation != what or answer.shape != tensor.shape:
                raise RuntimeError(
                    f"rank 0 was in {operation} {answer.shape}, and this one in {what} {tensor.shape}"
                )
            tensor.copy_(answer)
        else:
            tensor.mul_(factor)
        self._next += 1
        _written.setdefault(self._name, []).append((what, tensor.detach().clone()))


class Exchanges:
    """Of all trees: before each exchange the messages of the other ranks are there."""

    def __init__(self, others: Others, tally: Tally) -> None:
        self._others, self._tally = others, tally
        self._begun: Counter[int] = Counter()  # by the tag of a tree
        post, complete = tree.Exchange._post, tree.Exchange._complete

        def posted(exchange: tree.Exchange[Any]) -> None:
            if exchange._tree._group is not None:
                self._tally.add("exchanges")
                with self._tally.network():
                    self._arrive(exchange)
            post(exchange)

        def completed(exchange: tree.Exchange[Any]) -> None:
            complete(exchange)
            if exchange._tree.leads:
                with self._tally.network():
                    first = pickle.dumps(exchange._mine)
                    _written.setdefault(_name(exchange._tree), []).append((first, exchange._told))

        tree.Exchange._post, tree.Exchange._complete = posted, completed  # type: ignore[method-assign, assignment]

    def _arrive(self, exchange: tree.Exchange[Any]) -> None:
        here, others, first = exchange._tree, self._others, exchange._mine
        if here.parent is not None:
            if others.answers:
                content, answer = others.answers[_name(here)][self._begun[here._tag]]
                first = pickle.loads(content)  # noqa: S301
            else:
                answer = pickle.dumps(others.merged(here.ranks, first, exchange._merge))
            here._group.arrives(here.parent, here._tag, answer)
        self._begun[here._tag] += 1
        sent: dict[int, bytes] = {}  # by the size of a subtree, where it does not matter which it is
        for child in here.children:
            below = _below(here.ranks, here.ranks.index(child))
            told = first[1] if isinstance(first, tuple) else first
            key = child if isinstance(told, dict) else len(below)
            if key not in sent:
                sent[key] = pickle.dumps(others.merged(below, first, exchange._merge))
            here._group.arrives(child, here._tag, sent[key])


def _name(of: tree.Tree) -> str:
    return f"tree {of._tag}"


def _below(ranks: Sequence[int], place: int) -> list[int]:
    """The rank at ``place`` of a tree, and all that send their values through it."""
    found: list[int] = []
    begin, end = place, place + 1
    while begin < len(ranks):
        found += ranks[begin:end]
        begin, end = tree.FAN_OUT * begin + 1, tree.FAN_OUT * end + 1
    return found


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
        self._begin, self._new = dist.init_process_group, dist.new_group
        Exchanges(others, tally)
        dist.rendezvous = self._rendezvous  # type: ignore[attr-defined]
        dist.init_process_group = self._init_process_group
        dist.new_group = self._new_group
        dist.get_backend_config = lambda *_: "cpu:gloo"

    def neighbours(self) -> int:
        """To how many ranks gloo has a socket for messages, if it connects two when one has something for the other."""
        return len(set().union(*(group.neighbours for group in self.groups)))

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


def _bytes(tensor: torch.Tensor) -> int:
    return tensor.numel() * tensor.element_size()


def _done(result: Any) -> Any:
    future: Future[Any] = Future()
    future.set_result(result)
    return _create_work_from_future(future)
