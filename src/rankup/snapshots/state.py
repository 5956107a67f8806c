"""What a snapshot is made of, and its copy in buffers, so that the training can continue.

The buffers are reused by the next save: new memory costs more than the copy (a page fault for each 4 KiB), and a GPU
copies fast only into pinned memory.
"""

from __future__ import annotations

import json
import threading
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import torch

from rankup.errors import RankupError
from rankup.snapshots.plan import Layout, Plan
from rankup.snapshots.shards import is_sharded, local, part_of, replicas
from rankup.snapshots.tensor_checksum import reduced


@dataclass(frozen=True)
class SnapshotState:
    """The state of a run at one step: the live objects. A save copies what it needs before it returns.

    ``tensors``     nested dicts and lists of tensors, DTensors and plain values. A replicated tensor or a value is the
                    same on every rank that holds it and is written once; a DTensor's shards are written by their ranks.
                    By convention ``{"model": {name: tensor}, "optimizer": …}`` with global parameter names, so that any
                    strategy and any world size can read it.
    ``rank_state``  of this rank alone: generators, BatchNorm statistics in the middle of an epoch. Nested dicts, lists
                    and tuples of tensors and plain values.
    ``metadata``    JSON, the same on all ranks: epoch, step, seed, world_size, strategy, precision, ``metrics``.
    ``stable``      ids of the tensors that do not change before ``Saver.wait_staged``: an optimizer's moments, until it
                    steps. They may be copied while the training continues.
    ``must_match``  name → text that must be the same on all ranks, or the save fails; ``sha256:…`` is not shown.
    ``may_differ``  names of tensors that may differ between ranks that hold the same part; all others must be equal.
    """

    tensors: dict[str, Any]
    rank_state: dict[str, Any] = field(default_factory=dict)
    metadata: dict[str, Any] = field(default_factory=dict)
    stable: frozenset[int] = frozenset()
    must_match: dict[str, str] = field(default_factory=dict)
    may_differ: frozenset[str] = frozenset()


Leaf = tuple[str, "dict[Any, Any] | list[Any]", Any]  # its name, what holds it, its key there


def leaves(tree: dict[str, Any]) -> Iterator[Leaf]:
    """Every value of nested dicts and lists, named by its path: ``optimizer/state/conv.weight/exp_avg``."""
    seen: set[str] = set()
    for name, holder, key in _leaves(tree, ""):
        if name in seen:  # {"a/b": …, "a": {"b": …}}
            raise RankupError(
                "ambiguous-state",
                f"two values of the state have the same name {name!r}",
                hint="rename one: '/' in a key separates levels",
                exit_code=1,
            )
        seen.add(name)
        yield name, holder, key


def _leaves(tree: dict[Any, Any] | list[Any], prefix: str) -> Iterator[Leaf]:
    for key, value in tree.items() if isinstance(tree, dict) else enumerate(tree):
        if isinstance(value, (dict, list)):
            yield from _leaves(value, f"{prefix}{key}/")
        else:
            yield f"{prefix}{key}", tree, key


def split(tree: dict[str, Any]) -> tuple[dict[str, torch.Tensor], dict[str, Any]]:
    """(tensors, other values), both by name."""
    tensors: dict[str, torch.Tensor] = {}
    values: dict[str, Any] = {}
    for name, holder, key in leaves(tree):
        value = holder[key]
        (tensors if isinstance(value, torch.Tensor) else values)[name] = value
    return tensors, values


# What torch.load(weights_only=True) can read, besides tensors: an error now is better than one at the resume.
_PLAIN = (bool, int, float, complex, str, bytes, type(None), torch.Size, torch.dtype, torch.device)


@dataclass(frozen=True)
class Staged:
    """A state that no longer changes once ``copied`` is set. ``data`` is what this rank writes, contiguous and on the
    CPU; ``sums``: of what only other ranks write, what its checksum is made of; ``metadata`` is JSON text; ``rest`` are
    the tensors that ``finish`` still has to take, with their versions at the save; ``compared`` are the names of what
    must be the same on all ranks.
    """

    plan: Plan
    data: dict[str, torch.Tensor]
    sums: dict[str, torch.Tensor]
    values: dict[str, Any]
    rank_state: dict[str, Any]
    metadata: str
    rest: dict[str, tuple[torch.Tensor, int]] = field(default_factory=dict)
    must_match: dict[str, str] = field(default_factory=dict)
    compared: frozenset[str] = frozenset()
    copied: threading.Event = field(default_factory=threading.Event)

    def finish(self) -> None:
        """Take the rest, from any thread. Raises RankupError if a tensor has changed in the meantime."""
        try:
            for name, (tensor, version) in self.rest.items():
                if name in self.data:
                    self.data[name].copy_(tensor)
                else:
                    self.sums[name] = reduced(tensor)
                if tensor._version != version:
                    raise RankupError(
                        "state-changed",
                        f"{name} was changed outside of the optimizer step while a snapshot was being copied",
                        hint="Snapshots(asynchronous=False) copies everything before training continues",
                        exit_code=1,
                    )
        finally:
            self.rest.clear()
            self.copied.set()


class Staging:
    """The buffers. A ``Staged`` is valid until the next ``copy``."""

    def __init__(self) -> None:
        self._buffers: dict[str, torch.Tensor] = {}
        self._devices: set[torch.device] = set()

    def copy(
        self, state: SnapshotState, plan_of: Callable[[Layout], Plan], *, lazily: bool = False
    ) -> Staged:
        """Copy what this rank writes by the plan, and take checksums of what other ranks write: it needs no memory.
        When this returns, the live objects may change. ``lazily`` leaves stable tensors on the CPU to
        ``Staged.finish``; copies from a GPU are queued on its stream.

        Raises RankupError ``unsaveable-state``, with the name, for what no load would accept.
        """
        tensors, values = split(state.tensors)
        pieces = {name: _saveable(name, local(tensor).detach()) for name, tensor in tensors.items()}
        plain = {name: self._plain(value, name) for name, value in values.items()}
        rank_state = {key: self._plain(value, f"rank_state/{key}") for key, value in state.rank_state.items()}
        plan = plan_of(
            Layout(
                {name: part_of(tensor) for name, tensor in tensors.items()},
                {name: replicas(tensor) for name, tensor in tensors.items() if is_sharded(tensor)},
                frozenset(values),
            )
        )
        staged = Staged(
            plan,
            {name: self._buffer(name, pieces[name]) for name in plan.chunks},
            {},
            plain,
            rank_state,
            json.dumps(state.metadata),
            {},
            state.must_match,
            frozenset(name for name in plan.shared if name not in state.may_differ),
        )
        for name, piece in pieces.items():
            if name not in staged.data and name not in staged.compared:
                continue
            if lazily and id(tensors[name]) in state.stable and piece.device.type == "cpu":
                staged.rest[name] = piece, piece._version
            elif name in staged.data:
                self._fill(staged.data[name], piece)
            else:
                staged.sums[name] = reduced(piece)
                self._devices.add(piece.device)
        for device in self._devices:
            if device.type != "cpu":
                torch.get_device_module(device).current_stream(device).synchronize()
        self._devices.clear()
        if not staged.rest:
            staged.copied.set()
        return staged

    def _buffer(self, name: str, tensor: torch.Tensor) -> torch.Tensor:
        buffer = self._buffers.get(name)
        if buffer is None or buffer.shape != tensor.shape or buffer.dtype != tensor.dtype:
            pinned = tensor.device.type != "cpu"
            buffer = torch.empty(tensor.shape, dtype=tensor.dtype, pin_memory=pinned)
            self._buffers[name] = buffer
        return buffer

    def _fill(self, buffer: torch.Tensor, tensor: torch.Tensor) -> torch.Tensor:
        self._devices.add(tensor.device)
        return buffer.copy_(tensor, non_blocking=True)

    def _plain(self, value: Any, name: str) -> Any:
        """A copy of nested plain values and tensors."""
        kind = type(value)
        if kind in _PLAIN:
            return value
        if isinstance(value, torch.Tensor):
            if is_sharded(value):
                raise _unsaveable(name, "a DTensor in the state of one rank")
            value = _saveable(name, value.detach())
            return self._fill(self._buffer(name, value), value)
        if kind in (dict, OrderedDict, Counter):
            # By way of a dict: a Counter would count the pairs.
            return kind({self._plain(k, name): self._plain(v, f"{name}/{k}") for k, v in value.items()})
        if kind in (list, tuple):
            return kind(self._plain(item, f"{name}/{i}") for i, item in enumerate(value))
        if kind is set:
            return {self._plain(item, name) for item in value}
        if isinstance(value, float):  # as a numpy.float64 is
            return float(value)
        if isinstance(value, int):
            return int(value)
        raise _unsaveable(name, f"a {kind.__module__}.{kind.__qualname__}")


def _saveable(name: str, tensor: torch.Tensor) -> torch.Tensor:
    if tensor.layout != torch.strided or tensor.is_quantized or tensor.is_meta:
        raise _unsaveable(name, f"a {tensor.layout} tensor on {tensor.device}")
    return tensor


def _unsaveable(name: str, what: str) -> RankupError:
    return RankupError(
        "unsaveable-state",
        f"{name} is {what}, which a snapshot cannot contain",
        hint="tensors, numbers, strings, and dicts, lists, tuples and sets of them; an array as a tensor",
        exit_code=1,
    )
