"""What tells whether a variable has changed, in this process and in the next one."""

from __future__ import annotations

import array
import hashlib
from collections import deque
from collections.abc import Container, Sized
from contextlib import suppress
from dataclasses import dataclass
from enum import Enum
from itertools import islice
from typing import Any

import torch
from torch import nn

from rankup.runtime.checkpointing.attributes import OTHER, array_digest, content, mark, same
from rankup.runtime.checkpointing.carried.iterators import iterator_mark
from rankup.runtime.checkpointing.carried.script_objects import has_state, of_library

_SAVED = (
    torch.Tensor,
    dict,
    list,
    set,
    deque,
)  # a list of them can be registered; some have attributes as well
SIMPLE = (bool, int, float, str, type(None))
_LONGEST = 40  # characters of a value in a message
ABSENT = object()  # a key that a dict does not have yet
_SAMPLED = 256  # numbers of a large tensor
_NESTED = 5  # containers in each other
_MOST_ITEMS = 1000  # of containers of other things than plain values


@dataclass
class Value:
    """``mark`` tells whether it has changed, also in another process if it is ``plain``."""

    mark: Any
    plain: bool
    text: str
    where: str  # the loop
    kind: str = ""  # "number" or "container", of those that can be registered
    rows: int = 0  # of a tensor or an array


def value_of(value: Any, where: str, ours: Container[int]) -> Value | None:
    """``ours``: ids of what other parts of the state have, whose changes do not count."""
    try:
        found = _looked_at(value, where, ours)
    except Exception:  # of an object of the script, or of a library, that cannot be looked at
        return None
    of_numpy = type(value).__module__ == "numpy"
    scalar = of_numpy and getattr(value, "ndim", 1) == 0
    if scalar or (isinstance(value, (*SIMPLE, tuple)) and not isinstance(value, Enum)):
        found.kind = "number"
    elif of_numpy or isinstance(value, torch.Tensor):
        found.kind, found.rows = "container", len(value) if getattr(value, "ndim", 0) else 0
    elif isinstance(value, (list, dict, set, deque)):
        items = [*islice(value.values() if isinstance(value, dict) else value, _MOST_ITEMS)]
        own = any(hasattr(item, "__dict__") and not isinstance(item, _SAVED) for item in items)
        found.kind = "objects" if own else "container"
    return found


def _looked_at(value: Any, where: str, ours: Container[int]) -> Value:
    if type(value).__module__ == "numpy" and getattr(value, "ndim", 1) == 0:
        value = value.item()
    if value is ABSENT:
        return Value("absent", True, "nothing", where)
    text = _shown(value)
    if text_and_mark := iterator_mark(value):
        return Value(text_and_mark[1], True, text_and_mark[0], where)
    if isinstance(value, Enum):
        return Value(f"{type(value).__name__}.{value.name}", True, str(value), where)
    for kind in (dict, list, tuple):
        if isinstance(value, kind) and type(value) is not kind:  # a Counter, a named tuple
            value = kind(value)
    if (found := mark(value)) is not OTHER:
        long = isinstance(found, str) and len(found) > _LONGEST
        return Value(hashlib.sha256(found.encode()).hexdigest() if long else found, True, text, where)
    if digest := array_digest(value):
        return Value(digest, True, text, where)
    if isinstance(value, (array.array, bytearray)):
        return Value(hashlib.sha256(memoryview(value).cast("B")).hexdigest(), True, text, where)
    if written := _written(value, ours):
        return Value(written, True, text, where)
    if isinstance(value, torch.Tensor):
        version = 0 if value.is_inference() else value._version
        return Value((id(value), version, _sampled(value)), False, text, where)
    if isinstance(value, (list, dict, tuple, set, deque)):
        return Value((id(value), *content(value, ours)), False, text, where)
    if isinstance(value, nn.Module):
        return Value(("a module", id(value)), False, text, where, "module")
    return Value("an object", False, text, where)  # which may be there or not


def _sampled(value: torch.Tensor) -> str:
    """Of some numbers of a large tensor on the CPU: ``queue.data[…] = loss`` does not count as a new version."""
    dense = value.layout is torch.strided and not (value.is_nested or value.is_quantized)
    if not dense or value.device.type != "cpu" or not value.is_contiguous():
        return ""
    every = max(1, value.numel() // _SAMPLED)
    flat = value.detach().view(-1)
    return array_digest(torch.cat([flat[:_SAMPLED], flat[::every][:_SAMPLED]]))


def _written(value: Any, ours: Container[int]) -> str:
    """A digest, alike in another process, of a container of plain values, small arrays and objects of the script's own
    classes (``{"loss": AverageMeter()}``); "" if it holds something else, or very much."""
    budget = [_MOST_ITEMS]

    def each(item: Any, depth: int) -> Any:
        budget[0] -= 1
        if budget[0] < 0 or depth < 0:
            raise ValueError
        if (found := mark(item)) is not OTHER:
            return found
        if id(item) in ours:
            return type(item).__name__
        if digest := array_digest(item):
            return digest
        if has_state(item):  # it is registered, or another warning speaks of it
            return type(item).__name__
        if type(item) is dict or type(item) in (list, tuple, deque):
            items = item.items() if isinstance(item, dict) else item
            return [type(item).__name__, *(each(inner, depth - 1) for inner in items)]
        if (
            type(item).__module__ == "numpy"
            or isinstance(item, (nn.Module, torch.Tensor))
            or of_library(item)
        ):
            raise ValueError
        return [type(item).__name__, *(each(inner, depth - 1) for inner in sorted(vars(item).items()))]

    try:
        if not isinstance(value, (dict, list, tuple, deque)) or len(value) > _MOST_ITEMS:
            return ""
        return hashlib.sha256(repr(each(value, _NESTED)).encode()).hexdigest()
    except (ValueError, TypeError):
        return ""


def unchanged(before: Value, now: Value) -> bool:
    return before.plain is now.plain and same(before.mark, now.mark)


def is_lost(now: Value, mark: Any, text: str, as_at_first: bool = False) -> bool:
    """``mark``: of the value that was saved, or ``as_at_first`` of the one that it began with."""
    return same(mark, now.mark) is as_at_first


def _shown(value: Any) -> str:
    if isinstance(value, SIMPLE):
        text = repr(value)
        return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…"
    if isinstance(value, torch.Tensor) and value.numel() == 1:
        return str(value.item())
    if isinstance(value, Sized) and getattr(value, "shape", 1) != ():
        with suppress(TypeError, NotImplementedError):  # a DataLoader over a stream has no length
            return f"{type(value).__name__} of {len(value)}"
    return f"a {type(value).__name__}"
