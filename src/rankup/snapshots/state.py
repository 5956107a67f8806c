"""What a snapshot is made of."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import torch

from rankup.errors import RankupError


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
