"""The places in a registered object: what it holds that can be saved, by the path that leads there."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from enum import Enum
from typing import Any, NamedTuple

import torch
from torch import nn
from torch.optim import Optimizer

from rankup.runtime.checkpointing.identities import Held
from rankup.runtime.checkpointing.packing import is_array, unsaveable
from rankup.runtime.checkpointing.registered_containers import adapter_of
from rankup.runtime.unregistered.marks import SIMPLE, mark_of, mark_of_state
from rankup.runtime.unregistered.walk import (
    OF_TORCH,
    attributes_of,
    cannot_be_set,
    is_one_everywhere,
    is_watched,
    key_of,
)

_DEPTH = 8  # of objects in each other
_MOST_ITEMS = 2_000  # of a list or dict of objects
_CPU = torch.device("cpu")

Path = tuple[tuple[bool, Any], ...]  # keys, each with whether it is an attribute


class Leaf(NamedTuple):
    """``path`` is relative to the object, and leads to ``value``."""

    path: Path
    holder: Any
    value: Any


def path_of_keys(keys: Iterable[Any]) -> Path:
    """As a snapshot gives it, which may have lists for tuples."""
    return tuple((attribute, key) for attribute, key in keys)


def written(path: Path) -> str:
    """``.best``, ``.seen['a']``."""
    return "".join(f".{key}" if attribute else f"[{key!r}]" for attribute, key in path)


class Passed(NamedTuple):
    """What a search for leaves has passed, by each path that leads to it: ``holders`` of leaves; ``again``: those that
    were reached before, by another path; ``pointers``: what snapshots hold already."""

    holders: dict[Path, Any]
    again: dict[Path, Any]
    pointers: dict[Path, Any]


def leaves_of(thing: Any, path: Path, known: set[int], seen: set[int], passed: Passed) -> Iterator[Leaf]:
    """Everything below ``thing`` that can be saved. ``known``: ids of what snapshots hold already."""
    if len(path) > _DEPTH:
        return
    passed.holders[path] = thing
    for name, buffer in _unsaved_buffers(thing):
        if id(buffer) not in known and _is_leaf(buffer):
            yield Leaf((*path, (True, name)), thing, buffer)
    for (attribute, key), value in items_of(thing).items():
        at = (*path, (attribute, key))
        if id(value) in known and not is_one_everywhere(value):
            passed.pointers[at] = value
        elif id(value) in seen:
            if not _is_leaf(value):
                passed.again[at] = value
        elif _is_leaf(value):
            yield Leaf(at, thing, value)
        elif isinstance(value, (list, tuple, deque, dict)) or _is_entered(value):
            seen.add(id(value))
            # Of a child its parent saves the state.
            child = isinstance(thing, nn.Module) and isinstance(value, nn.Module)
            prepared = isinstance(value, nn.Module) and any(id(each) in known for each in value.parameters())
            if isinstance(value, (nn.Module, Optimizer)) and not child and not prepared:
                yield Leaf(at, thing, value)
            yield from leaves_of(value, at, known, seen, passed)


def _unsaved_buffers(thing: Any) -> list[tuple[str, torch.Tensor]]:
    """Those that the ``state_dict`` of a module leaves out."""
    if not isinstance(thing, nn.Module):
        return []
    held = ((name, thing._buffers.get(name)) for name in thing._non_persistent_buffers_set)
    return [(name, buffer) for name, buffer in held if buffer is not None]


def _is_entered(value: Any) -> bool:
    """Not an iterator of a library, whose numbers do not set its place."""
    return is_watched(type(value)) and not cannot_be_set(value)


def items_of(thing: Any) -> dict[tuple[bool, Any], Any]:
    """What an object or a container holds, by the last key of its path."""
    if isinstance(thing, (list, tuple, deque, dict)):
        items = list(thing.items() if isinstance(thing, dict) else enumerate(thing))[:_MOST_ITEMS]
        return {(False, key_of(key, place)): item for place, (key, item) in enumerate(items)}
    torchs = isinstance(thing, (nn.Module, Optimizer))
    held = {(True, name): item for name, item in attributes_of(thing) if not (torchs and name in OF_TORCH)}
    if isinstance(thing, nn.Module):
        held |= {(True, name): child for name, child in thing._modules.items() if child is not None}
    return held


def ids_in(state: Any) -> set[int]:
    """Of the objects in a state. A small number is one object everywhere, and none of these."""
    if type(state) in SIMPLE:
        return set()
    items = state.values() if isinstance(state, dict) else state if isinstance(state, (list, tuple)) else ()
    return {id(state)}.union(*(ids_in(item) for item in items))


def _is_leaf(value: Any) -> bool:
    if isinstance(value, torch.Tensor) or is_array(value):  # of which some cannot be saved by themselves
        return adapter_of("", value, _CPU, Held()) is not None
    plain = tuple(value) if isinstance(value, tuple) else value
    by_itself = isinstance(value, Enum) or unsaveable(plain, "") is None
    return by_itself or adapter_of("", value, _CPU, Held()) is not None


def changing_mark(value: Any) -> Any:
    """Changes with the value. A part of a large tensor that is written to changes torch's count of its versions."""
    version = value._version if isinstance(value, torch.Tensor) and not value.is_inference() else 0
    if isinstance(value, (nn.Module, Optimizer)):
        return None, object()  # always saved
    if (mark := mark_of(value) or mark_of_state(value)) is not None:
        return mark.digest, version
    return None, object()  # a container of tensors


def put(holder: Any, key: tuple[bool, Any], value: Any) -> None:
    """Sets an attribute or an item."""
    attribute, name = key
    if attribute:
        try:
            setattr(holder, name, value)
        except AttributeError:  # a frozen dataclass
            object.__setattr__(holder, name, value)
    elif isinstance(holder, dict):
        holder[next((own for at, own in enumerate(holder) if key_of(own, at) == name), name)] = value
    elif isinstance(holder, (list, deque)) and name == len(holder):
        holder.append(value)  # what the training has appended
    elif not isinstance(holder, tuple):
        holder[name] = value


def remove(holder: Any, key: tuple[bool, Any]) -> None:
    """The same, without it."""
    attribute, name = key
    if attribute and name in dict(attributes_of(holder)):
        delattr(holder, name)
    elif isinstance(holder, dict):
        holder.pop(next((own for at, own in enumerate(holder) if key_of(own, at) == name), name), None)
