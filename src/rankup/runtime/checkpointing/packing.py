"""Nested lists, dicts and tuples of plain values, tensors and arrays, as a snapshot holds them.

``torch.load`` with ``weights_only`` reads builtin containers and tensors. Arrays and named tuples are written as tuples
of plain values.
"""

from __future__ import annotations

import sys
from collections import Counter, OrderedDict, deque
from collections.abc import Callable
from typing import Any

import torch

from rankup.errors import RankupError
from rankup.runtime.checkpointing.adapters import article
from rankup.runtime.unregistered.marks import SIMPLE

# What a snapshot holds as it is (snapshots/state.py).
_NESTED = (dict, OrderedDict, Counter, list, tuple, set)
# The first item of an array, and of a named tuple, as a snapshot holds it.
_ARRAY, _NAMED = "rankup: numpy.ndarray", "rankup: named tuple"


def is_plain_tensor(value: torch.Tensor) -> bool:
    """Of no class of the script's: a snapshot that has one could run code, and is not read."""
    return type(value).__module__.startswith("torch")


def is_array(value: Any) -> bool:
    numpy = sys.modules.get("numpy")
    return numpy is not None and isinstance(value, numpy.ndarray)


def as_torch(array: Any) -> torch.Tensor | None:
    """A copy, as ``torch.load`` reads it; None of what torch has no numbers for."""
    try:
        return torch.from_numpy(array.copy())
    except (TypeError, ValueError):
        return None


def unsaveable(value: Any, place: str) -> str | None:
    """The first thing in nested lists and dicts that a snapshot cannot contain, with its place; None without one."""
    if isinstance(value, torch.Tensor):
        return None if is_plain_tensor(value) else f"{place} is {article(value)}"
    if isinstance(value, SIMPLE) or _is_packable(value):
        return None
    if type(value) not in _NESTED and _name_of_named(value) is None:
        return f"{place} is {article(value)}"
    if isinstance(value, dict):
        if any(isinstance(key, torch.Tensor) for key in value):
            return f"a key of {place} is a tensor"  # which is found by its identity
        inner = [(key, f"a key of {place}") for key in value]
        inner += [(item, f"{place}[{key!r}]") for key, item in value.items()]
    else:
        inner = [(item, f"{place}[{index}]") for index, item in enumerate(value)]
    return next((found for item, at in inner if (found := unsaveable(item, at)) is not None), None)


def _is_packable(value: Any) -> bool:
    """An array or a number of NumPy's."""
    numpy = sys.modules.get("numpy")
    if numpy is None or not (type(value) is numpy.ndarray or isinstance(value, numpy.generic)):
        return False
    return value.dtype.kind in "biufcSUmM"


def is_mutable(value: Any) -> bool:
    """Whether two names of it see the same change. A 0-d array comes back from a snapshot as a number."""
    return isinstance(value, (torch.Tensor, list, dict, set, deque)) or (is_array(value) and value.ndim > 0)


def packed(value: Any, note: Callable[[Any], object] | None = None) -> Any:
    """``value`` with each array and number of NumPy's, at any depth, as a tuple of plain values: ``torch.load`` reads
    no arrays, and thousands of them (a replay buffer) would be slow as tensors. ``note`` gets each mutable object,
    after what it holds."""
    if _is_packable(value):
        new: Any = (_ARRAY, value.dtype.str, value.shape, value.tobytes())
    elif (name := _name_of_named(value)) is not None:
        new = (_NAMED, name, tuple(packed(item, note) for item in value))
    else:
        new = packed_items(value, note)
    if note is not None and is_mutable(value):
        note(value)
    return new


def packed_items(value: Any, note: Callable[[Any], object] | None) -> Any:
    """The same, of what a container holds; it is not noted itself."""
    return _nested(packed, value, note)


def is_packed(value: Any) -> bool:
    """Whether it is an array, as ``packed`` gives it."""
    return _is_marked(value, 4, _ARRAY)


def unpacked(value: Any, place: Callable[[Any], Any] | None = None) -> Any:
    """The value of which ``packed`` made ``value``. ``place`` gets the mutable objects in the order of ``note``, and
    gives what to use in their place. Raises RankupError for a kind of named tuple that this process does not have."""
    if is_packed(value):
        import numpy

        _, dtype, shape, data = value
        new = numpy.frombuffer(data, dtype).reshape(shape).copy()[()]
    elif _is_marked(value, 3, _NAMED):
        new = _named(value[1])._make(unpacked(item, place) for item in value[2])
    else:
        new = unpacked_items(value, place)
    return place(new) if place is not None and is_mutable(new) else new


def unpacked_items(value: Any, place: Callable[[Any], Any] | None) -> Any:
    """The same, of what a container holds; it has no place itself."""
    return _nested(unpacked, value, place)


def _is_marked(value: Any, length: int, mark: str) -> bool:
    return type(value) is tuple and len(value) == length and type(value[0]) is str and value[0] == mark


def _nested(change: Callable[[Any, Any], Any], value: Any, each: Any) -> Any:
    """``value``, with what a container holds changed."""
    if type(value) not in _NESTED:
        return value
    if isinstance(value, dict):
        return type(value)({change(key, each): change(item, each) for key, item in value.items()})
    if isinstance(value, set):
        each = None  # it has another order in each process, and holds nothing that changes
    return type(value)(change(item, each) for item in value)


def _name_of_named(value: Any) -> str | None:
    """Where the class of a named tuple is found in another process; None of anything else."""
    kind = type(value)
    if not (issubclass(kind, tuple) and hasattr(kind, "_fields") and hasattr(kind, "_make")):
        return None
    name = f"{kind.__module__}:{kind.__qualname__}"
    return name if _found(name) is kind else None


def _found(name: str) -> Any:
    module, _, path = name.partition(":")
    found: Any = sys.modules.get(module)
    for attribute in path.split("."):
        found = getattr(found, attribute, None)
    return found


def _named(name: str) -> Any:
    kind = _found(name)
    if not (isinstance(kind, type) and issubclass(kind, tuple) and hasattr(kind, "_make")):
        raise RankupError(
            "other-registered",
            f"the state has a named tuple of the class {name.replace(':', '.')}, which this process does not have",
            hint="define it before the loop, in the module where the run that saved it had it",
        )
    return kind


def content(thing: Any) -> Any:
    """The content of a dict, list, set or deque (of any subclass) as a new dict or list."""
    if isinstance(thing, dict):
        return dict(thing)
    # A set has another order in each process.
    return sorted(thing, key=repr) if isinstance(thing, set) else list(thing)
