"""Which variables a loop of a script carries from one pass to the next, read from its source.

A name is carried if a pass may read it before the pass has set it (``best = max(best, accuracy)``,
``history.append(loss)``), or if a pass sets it only sometimes and it is read after the loop. What each pass sets first
is not carried, however it changes (``total = 0.0`` before an inner loop). Names are dotted: ``best``, ``self.best``,
``history.[loss]`` for ``history["loss"]``.

Calls of the script's own functions are followed, if the caller can say which function a name means: what they do with
their parameters (``state.best``, ``self.best``) and with names of their surroundings belongs to the pass.
"""

from __future__ import annotations

import ast
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

from rankup.runtime.checkpointing.carried.clocks import clocks_in
from rankup.runtime.checkpointing.carried.flow import Called, Flow
from rankup.runtime.checkpointing.carried.syntax import (
    class_of,
    covered,
    loops_around,
    own_names,
    parsed,
    parts_of,
    read_after,
)

_RESETS = ("reset", "clear", "restart", "zero_")


@dataclass(frozen=True)
class Carried:
    """``names`` may be carried; ``anew`` are set in each pass before they are read. ``line``: of the loop."""

    names: frozenset[str]
    anew: frozenset[str]
    line: int


def carried_around(
    source: str, line: int, look: Callable[[str], Called | None] = lambda _: None
) -> tuple[Carried, ...]:
    """Of the loops around ``line``, in their headers or bodies, the innermost first."""
    inside, scope = loops_around(parsed(source), line)
    elsewhere = _of_functions(source) if inside else frozenset()
    clocks = clocks_in(source, scope) if inside else frozenset()
    found = []
    for loop in inside:
        flow = Flow(look=look)
        header = [loop.test] if isinstance(loop, ast.While) else []
        for test in header:
            flow.expression(test)
        if not isinstance(loop, ast.While):
            flow.store(loop.target)
        flow.block(loop.body)
        anew = frozenset(flow.stored - flow.exposed)
        after = read_after(scope, loop) & (flow.sometimes - flow.stored)
        names = flow.exposed | after | {name for name in elsewhere if not covered(name, anew)}
        found.append(Carried(frozenset(names - clocks), anew, loop.lineno))
    return tuple(found)


@lru_cache(maxsize=64)
def carried_attributes(source: str, name: str, line: int = 0, only: str = "") -> frozenset[str]:
    """Attributes of the class ``name`` (its qualified name) that a method, or the one named ``only``, may read before
    it sets them. ``line``: one of its lines, if several classes have this name. Not those that only its ``__init__`` or
    a method that begins anew uses."""
    found: set[str] = set()
    tree = parsed(source)
    described = class_of(tree, name.split("."), line)
    clocks = {dotted.rpartition(".")[2] for dotted in clocks_in(source, None)}
    for method in described.body if described is not None else []:
        if not isinstance(method, (ast.FunctionDef, ast.AsyncFunctionDef)) or not method.args.args:
            continue
        if only not in ("", method.name) or method.name.startswith(
            ("__init__", "__repr__", "__str__", *_RESETS)
        ):
            continue
        me = method.args.args[0].arg + "."
        flow = Flow()
        flow.block(method.body)
        found |= {dotted.removeprefix(me) for dotted in flow.exposed if dotted.startswith(me)}
    return frozenset(name for name in found - clocks if "." not in name)


@lru_cache(maxsize=64)
def _of_functions(source: str) -> frozenset[str]:
    """What functions of the script may read of the script's own names before they set them: a loop may call them."""
    found: set[str] = set()
    for part in parts_of(parsed(source)):
        if isinstance(part, (ast.FunctionDef, ast.AsyncFunctionDef)):
            flow = Flow()
            flow.block(part.body)
            own = own_names(part)
            found |= {name for name in flow.exposed if name.split(".")[0] not in own}
    return frozenset(found)
