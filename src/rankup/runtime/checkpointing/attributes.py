"""Attributes of an object, as a snapshot can hold them; and what tells whether another one has changed."""

from __future__ import annotations

import hashlib
import marshal
from collections import deque
from collections.abc import Container, Iterable
from itertools import islice
from types import FunctionType, ModuleType
from typing import Any

import torch
from torch import nn
from torch.optim import Optimizer
from torch.utils.data import Dataset

_SIMPLE = (bool, int, float, str, type(None))
_CONTAINERS: dict[str, Any] = {"list": list, "tuple": tuple, "set": set, "dict": dict, "deque": deque}
_MOST_ITEMS = 100_000  # of a container: a larger one is not read at each save
_MOST_BYTES = 8 * 2**20
_MOST_NUMBERS = 1024  # of an array
_OF_EACH_OTHER = 3  # objects in each other
_LOOKED_AT = 64  # items of a container that is not plain
OTHER = object()
# torch's own of each module and optimizer; modes are restored by ``frozen.py``.
_TORCH = frozenset({*vars(nn.Module()), *vars(torch.optim.SGD([nn.Parameter(torch.zeros(1))], lr=1.0))}) | {
    "_step_count",
    "_opt_called",
    "_warned_capturable_if_run_uncaptured",
}


def plain(thing: object) -> dict[str, Any]:
    """The ``mark`` of each plain attribute."""
    found = {name: mark(value) for name, value in vars(thing).items() if name not in _TORCH}
    return {name: value for name, value in found.items() if value is not OTHER}


def mark(value: Any) -> Any:
    """What tells whether a plain value has changed: itself, or a digest of a container; else ``OTHER``."""
    if type(value) in _SIMPLE:
        return value
    kind = type(value).__name__
    if _CONTAINERS.get(kind) is not type(value) or len(value) > _MOST_ITEMS:
        return OTHER
    # In C: a data set's list of 60,000 samples is looked at in each save. Its version 2 writes equal values alike.
    try:
        items = sorted(value, key=repr) if kind == "set" else [*value] if kind == "deque" else value
        return f"{kind} {hashlib.sha256(marshal.dumps(items, 2)).hexdigest()}"
    except ValueError:  # it holds something else
        return OTHER


def written(value: Any) -> Any:
    """A plain value as a snapshot can hold it: itself, or a container as [kind, length at most, items]. ValueError for
    a container with something else in it, such as NumPy's numbers, which ``mark`` can tell from each other as well."""
    if type(value) in _SIMPLE:
        return value
    kind = type(value).__name__
    if _CONTAINERS.get(kind) is not type(value):
        raise ValueError(kind)
    items = [written(item) for item in (value.items() if kind == "dict" else value)]
    return [kind, getattr(value, "maxlen", None), items]


def read(text: Any) -> Any:
    """What was ``written``."""
    if not isinstance(text, list):
        return text
    kind, longest, items = text
    values = [read(item) for item in items]
    return deque(values, longest) if kind == "deque" else _CONTAINERS[kind](values)


def put(thing: object, name: str, value: Any) -> None:
    """In place, since another variable may hold the same container."""
    held = vars(thing).get(name)
    if isinstance(held, (list, deque)) and type(held) is type(value):
        held.clear()
        held.extend(value)
    elif isinstance(held, (set, dict)) and type(held) is type(value):
        held.clear()
        held.update(value)
    else:
        vars(thing)[name] = value


def same(first: Any, second: Any) -> bool:
    """NaN is the same as NaN, and 1 is not True."""
    return type(first) is type(second) and repr(first) == repr(second)


def others(thing: object, saved: Container[int]) -> dict[str, tuple[Any, ...]]:
    """What tells whether an attribute that is not plain has changed: which object it is, and what it contains; see
    ``content``."""
    return {
        name: (id(value), *content(value, saved))
        for name, value in vars(thing).items()
        if name not in _TORCH and mark(value) is OTHER
    }


def small(value: object) -> bool:
    """Whether to keep ``value`` alive costs little memory: not so for the rows of a data set."""
    if isinstance(value, torch.Tensor):
        return value.numel() * value.element_size() <= _MOST_BYTES
    if type(value).__module__ == "numpy":
        return int(getattr(value, "nbytes", 0)) <= _MOST_BYTES
    return _length(value) <= _MOST_ITEMS


def small_arrays(thing: object) -> dict[str, str]:
    """Digests of small tensors and arrays of NumPy, by attribute."""
    found = {name: array_digest(value) for name, value in vars(thing).items() if name not in _TORCH}
    return {name: text for name, text in found.items() if text}


def array_digest(value: object) -> str:
    """Of a small tensor on the CPU, or of a small array of NumPy; else ""."""
    if type(value) is torch.Tensor:
        dense = value.layout is torch.strided and not (value.is_nested or value.is_quantized)
        if not dense or value.device.type != "cpu" or value.requires_grad or value.numel() > _MOST_NUMBERS:
            return ""
        items: Any = value.tolist()
    elif type(value).__module__ == "numpy" and getattr(value, "size", _MOST_NUMBERS + 1) <= _MOST_NUMBERS:
        items = value.tolist()  # type: ignore[attr-defined]
    else:
        return ""
    return hashlib.sha256(repr(items).encode()).hexdigest()


def content(value: object, saved: Container[int], depth: int = 2) -> tuple[Any, ...]:
    """Of large containers a part, of small arrays all; nothing is read from other tensors, nor from files and the like
    that only look like a container. ``saved``: ids of tensors that snapshots have anyway, such as a model's weights in
    a list of the script's."""
    if id(value) in saved or isinstance(
        value, (nn.Module, Optimizer, Dataset, type, ModuleType, FunctionType)
    ):
        return ()  # things of their own
    if isinstance(value, torch.Tensor):
        return () if value.is_inference() else (value._version,)
    if text := array_digest(value):
        return (text,)
    if depth and isinstance(value, dict):
        items = [*islice(value.items(), _LOOKED_AT)]
        return (len(value), *((_item(key, saved, 0), _item(each, saved, depth - 1)) for key, each in items))
    if depth and isinstance(value, (list, tuple, deque)):
        every = max(1, len(value) // _LOOKED_AT)
        return (len(value), *(_item(each, saved, depth - 1) for each in islice(value, 0, None, every)))
    if depth and hasattr(value, "__dict__"):
        return tuple((name, _item(each, saved, 0)) for name, each in vars(value).items())
    return (_length(value),)


def within(things: Iterable[Any]) -> set[int]:
    """Ids of ``things`` and of what their attributes hold, also in lists and dicts: a SequentialLR's schedules. Not of
    optimizers: a schedule holds its optimizer but does not save it."""
    found = {id(thing) for thing in things}
    level = list(things)
    for depth in range(_OF_EACH_OTHER):
        following: list[Any] = []
        for thing in level:
            if depth and (id(thing) in found or isinstance(thing, Optimizer)):
                continue
            found.add(id(thing))
            if isinstance(thing, (list, tuple)):
                following += thing
            elif isinstance(thing, dict):
                following += thing.values()
            elif hasattr(thing, "__dict__") and not isinstance(thing, (type, nn.Module)):
                following += vars(thing).values()
        level = following
    return found


def _length(value: object) -> int:
    return len(value) if isinstance(value, (list, tuple, dict, set, frozenset, deque, str, bytes)) else -1


def _item(value: object, saved: Container[int], depth: int) -> Any:
    return repr(value) if type(value) in _SIMPLE else (id(value), *content(value, saved, depth))
