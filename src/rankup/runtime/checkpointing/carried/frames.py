"""The variables that the loops of a frame carry, with their values now."""

from __future__ import annotations

import linecache
import os
from collections import Counter, OrderedDict, defaultdict
from collections.abc import Iterator, Mapping
from enum import Enum
from inspect import CO_OPTIMIZED
from types import FrameType
from typing import Any

from rankup.runtime.checkpointing.carried.names import Carried, carried_attributes
from rankup.runtime.checkpointing.carried.script_objects import (
    NOTHING,
    file_of,
    has_state,
    held,
    line_of,
    of_library,
)
from rankup.runtime.checkpointing.carried.values import ABSENT, SIMPLE
from rankup.runtime.tracing.script_variables import is_library

_DEPTH = 2  # of objects in each other
_DICTS = (dict, OrderedDict, Counter, defaultdict)


def scope_of(root: str, frame: FrameType, own: Mapping[str, Any], frames: list[FrameType]) -> str:
    """The function that a variable belongs to, "" for the script's own, "module." for those of a module that it
    imports: functions and modules may use one name for several things."""
    module = str(frame.f_globals.get("__name__", ""))
    module = "" if module == "__main__" else f"{module}."
    if not frame.f_code.co_flags & CO_OPTIMIZED or root not in own:
        return module
    if root in frame.f_code.co_freevars:
        owners = [each for each in frames if root in each.f_code.co_cellvars]
        return module + (owners[0].f_code.co_name if owners else "")
    return module + frame.f_code.co_name


def carried_of_frame(
    variables: Mapping[str, Any], loop: Carried, ours: set[int]
) -> Iterator[tuple[str, Any, Any]]:
    """Each with the object that has it as an attribute, or None."""
    for name in sorted(loop.names):
        try:
            yield from _variable(name, variables, loop, ours)
        except Exception:  # a property or a proxy of the script that raises
            continue


def _variable(
    name: str, variables: Mapping[str, Any], loop: Carried, ours: set[int]
) -> Iterator[tuple[str, Any, Any]]:
    first, *rest = name.split(".")
    value, holder = variables.get(first, NOTHING), None
    if name.endswith("]") and (value is os.environ or (value is os and rest[0] == "environ")):
        yield name, os.environ.get(rest[-1][1:-1], ABSENT), os.environ
        return
    for attribute in rest:
        # Of a run's and of prepared objects other parts of the state take care.
        hidden = known(value, ours) or of_library(value)
        value, holder = NOTHING if hidden else held(value, attribute), value
        if value is NOTHING and type(holder) in _DICTS:
            value = ABSENT
    if value is not NOTHING:
        yield from _with_attributes(name, value, holder, loop, ours, _DEPTH)


def _with_attributes(
    name: str, value: Any, holder: Any, loop: Carried, ours: set[int], depth: int
) -> Iterator[tuple[str, Any, Any]]:
    yield name, value, holder
    if (
        known(value, ours)
        or not depth
        or isinstance(value, (type, Enum))
        or of_library(value)
        or has_state(value)
    ):
        return
    for attribute in sorted(_carried_of(type(value))):
        inside = held(value, attribute)
        inner = f"{name}.{attribute}"
        if inside is not NOTHING and inner not in loop.anew:
            yield from _with_attributes(inner, inside, value, loop, ours, depth - 1)


def known(value: Any, ours: set[int]) -> bool:
    """Whether another part of the state has it. Equal numbers may be one object."""
    return id(value) in ours and not isinstance(value, SIMPLE)


def _carried_of(kind: type) -> set[str]:
    found: set[str] = set()
    for each in kind.__mro__:
        if (path := file_of(each)) and not is_library(path):
            found |= carried_attributes("".join(linecache.getlines(path)), each.__qualname__, line_of(each))
    return found
