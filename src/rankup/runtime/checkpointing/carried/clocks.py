"""Variables that hold times of the clock: that they begin again after a resume is right."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import lru_cache

from rankup.runtime.checkpointing.carried.syntax import dotted, parsed, parts_of

_NUMBERS = frozenset({"round", "float", "int", "str", "abs", "max", "min"})
_CLOCKS = frozenset({"time", "perf_counter", "monotonic", "process_time", "datetime", "now", "elapsed_time"})


@lru_cache(maxsize=256)
def _assigned(tree: ast.AST) -> tuple[tuple[str, ast.expr], ...]:
    """What is assigned to each name in it."""
    return tuple(_assignments(tree))


def _assignments(tree: ast.AST) -> Iterator[tuple[str, ast.expr]]:
    for part in parts_of(tree):
        if isinstance(part, (ast.Assign, ast.AnnAssign, ast.AugAssign)) and part.value is not None:
            for target in part.targets if isinstance(part, ast.Assign) else [part.target]:
                if name := dotted(target):
                    yield name, part.value


@lru_cache(maxsize=256)
def clocks_in(source: str, scope: ast.AST | None) -> frozenset[str]:
    """Variables of ``scope``, and attributes in the whole file, that hold times of the clock."""
    own = set(_assigned(scope)) if scope is not None else set()
    assigned = own | {(name, value) for name, value in _assigned(parsed(source)) if "." in name}
    found: set[str] = set()
    while more := {name for name, value in assigned if name not in found and _is_clock(value, found)}:
        found |= more
    return frozenset(found)


def _is_clock(value: ast.expr, clocks: set[str]) -> bool:
    """A time, or a difference of two; not a list or a call of something that gets one."""
    if isinstance(value, ast.BinOp):
        return _is_clock(value.left, clocks) or _is_clock(value.right, clocks)
    if isinstance(value, ast.Call):
        name = dotted(value.func).rpartition(".")[2]
        every = [value.func.value] if isinstance(value.func, ast.Attribute) else []
        if name in _NUMBERS or name in ("total_seconds", "timestamp"):
            return any(_is_clock(each, clocks) for each in (*every, *value.args))
        return name in _CLOCKS
    return dotted(value) in clocks
