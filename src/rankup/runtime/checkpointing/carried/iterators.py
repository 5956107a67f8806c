"""How far an iterator of the script is, without asking it for a value."""

from __future__ import annotations

import dis
import gc
import hashlib
import itertools
import operator
from collections.abc import Iterator
from functools import lru_cache
from types import CodeType, FunctionType, GeneratorType
from typing import Any

import torch
from torch.utils.data import DataLoader, Dataset, Sampler
from torch.utils.data.dataloader import _BaseDataLoaderIter

from rankup.runtime.checkpointing.attributes import OTHER, array_digest, mark
from rankup.runtime.tracing.script_variables import is_library, variables_of

_SIMPLE = (bool, int, float, str, type(None))
_OF_OTHER_DATA = (DataLoader, Dataset, Sampler, torch.Tensor, FunctionType, type)
_DEPTH = 4  # of iterators in each other
_MOST_ITEMS = 1000


def iterator_mark(value: Any) -> tuple[str, str] | None:
    """(text, mark) of an iterator of which the position can be seen; None of others."""
    if isinstance(value, GeneratorType):
        return _generator(value)
    place = _place(value, _DEPTH)
    if place is None:
        return None
    if isinstance(value, (itertools.count, _BaseDataLoaderIter)):
        return place, place
    left = operator.length_hint(value, -1)
    text = f"a {type(value).__name__}" + (f" with {left} values left" if left >= 0 else "")
    return text, hashlib.sha256(place.encode()).hexdigest()


def _place(value: Any, depth: int) -> str | None:
    """How far it is; None if that cannot be seen."""
    if isinstance(value, itertools.count):
        return repr(value)
    if isinstance(value, _BaseDataLoaderIter):
        return f"an iterator of a DataLoader after {value._num_yielded} batches"
    if isinstance(value, GeneratorType):
        found = _generator(value)
        return found and found[1]
    if (
        not isinstance(value, Iterator)
        or type(value).__module__ not in ("builtins", "itertools")
        or not depth
    ):
        return None
    kind = type(value).__name__
    if (left := operator.length_hint(value, -1)) >= 0:
        return f"{kind} {left}"
    try:
        parts = (
            value.__reduce__()
        )  # what pickle would write: the iterators that it reads, and its own position
    except Exception:  # it has none: itertools from Python 3.14 on
        return None
    return _places(parts[1:], depth - 1) if isinstance(parts, tuple) else None


def _places(parts: tuple[Any, ...], depth: int) -> str | None:
    found = []
    for part in parts:
        if isinstance(part, Iterator):
            place = _place(part, depth)
        elif isinstance(part, tuple):
            place = _places(part, depth)
        elif isinstance(part, list):  # the values that a cycle repeats
            place = f"list {len(part)}"
        else:
            place = str(marked) if (marked := mark(part)) is not OTHER else type(part).__name__
        if place is None:
            return None
        found.append(place)
    return repr(found)


def _generator(value: GeneratorType[Any, Any, Any]) -> tuple[str, str] | None:
    """By its line, its variables, and the loops that it is in. None if it may pass on the batches of the loop itself:
    if it has an object of a kind that is not known here."""
    if is_library(value.gi_code.co_filename) or value.gi_frame is None:
        return None
    variables = variables_of(value.gi_frame)
    marks = {name: _mark(each) for name, each in variables.items()}
    # The iterators of its ``for`` loops have no name.
    inside = {id(each): each for each in (*gc.get_referents(value), *gc.get_referents(value.gi_frame))}
    places = [_place(each, _DEPTH) for each in inside.values() if isinstance(each, Iterator)]
    if None in marks.values() or None in places:
        return None
    # With one ``yield`` its line tells nothing: ``while True: yield torch.randn(…)`` has begun, or has not.
    line = value.gi_frame.f_lasti if _yields(value.gi_code) > 1 else 0
    said = repr((line, sorted(marks.items()), sorted(map(str, places))))
    shown = ", ".join(
        f"{name} = {each!r}" for name, each in sorted(variables.items()) if type(each) in _SIMPLE
    )
    text = f"a generator with {shown[:80]}" if shown else "a generator"
    return text, f"generator {hashlib.sha256(said.encode()).hexdigest()}"


@lru_cache(maxsize=64)
def _yields(code: CodeType) -> int:
    return sum(one.opname in ("YIELD_VALUE", "YIELD_FROM") for one in dis.get_instructions(code))


def _mark(value: Any, depth: int = 3) -> str | None:
    """Of a variable of a generator; None of another kind of object."""
    if (plain := mark(value)) is not OTHER:
        return repr(plain)
    if digest := array_digest(value):
        return digest
    if isinstance(value, Iterator):
        return _place(value, _DEPTH)
    if isinstance(value, (list, tuple, dict)) and depth and len(value) <= _MOST_ITEMS:
        items = [_mark(each, depth - 1) for each in (value.values() if isinstance(value, dict) else value)]
        return None if None in items else repr(items)
    return type(value).__name__ if isinstance(value, _OF_OTHER_DATA) else None
