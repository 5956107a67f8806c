"""Variables that a loop sets and that the code after the loop reads: ``loss`` in ``print(loss.item())``.

A request to stop may come in an epoch's last step, or in the evaluation after the inner loop. The resumed run goes on
after the inner loop: that loop does not run again, and its variables would have no value. The same is true of a loop
that has ended before the snapshot. So a snapshot holds the values of these variables, and the resume sets them when
their loop ends without an iteration. Values are numbers, texts, small tensors, lists and dicts of numbers and texts,
and the epoch itself.

Which variables: those that the loop assigns, and that the code after it may read before it assigns them. Not those that
hold a registered object (``confusion += …``): it is restored already, and a copy in its place would be in no snapshot.
"""

from __future__ import annotations

import ast
import ctypes
import linecache
import sys
from collections.abc import Callable, Mapping
from functools import lru_cache
from types import FrameType
from typing import Any

import torch

from rankup.runtime.checkpointing.attributes import OTHER, mark, read, written
from rankup.runtime.checkpointing.carried.flow import Flow
from rankup.runtime.checkpointing.carried.frames import known
from rankup.runtime.checkpointing.carried.syntax import loops_around, parsed, stores
from rankup.runtime.tracing.script_variables import script_frames, variables_of

_MOST_BYTES = 2**20  # of a tensor
_TENSOR, _EPOCH = "tensor", "epoch"


class IndexedEpoch:
    """An epoch, which its number can make again."""

    index: int


class LoopVariables:
    """Of one rank. Each loop by its number in its stage and its place in the script."""

    def __init__(self, owned: Callable[[], set[int]]) -> None:
        """``owned``: gives the ids of what other parts of the state have."""
        self._owned = owned
        self._ended: dict[str, dict[str, Any]] = {}  # of loops that have ended
        self._saved: dict[str, dict[str, Any]] = {}
        self._passes = False  # whether the loop that runs has made a pass in this attempt
        self._whole = True  # whether the values are of this rank, and of all its steps
        self._epoch: Callable[[int], IndexedEpoch] | None = None

    def state(self, number: int) -> dict[str, dict[str, Any]]:
        """``number``: of the loop that runs, or ran last."""
        return {**self._ended, **self._around(number)}

    def load(self, saved: Mapping[str, dict[str, Any]], *, own: bool) -> None:
        """``own``: whether this rank saved them. Else only those are set that have no value: a sum over the samples of
        another rank is not the one of this rank."""
        self._saved, self._whole = dict(saved), own
        self._ended = dict(saved)

    def begin(self, epoch: Callable[[int], IndexedEpoch]) -> None:
        """A loop begins, of which ``epoch`` makes the epoch with a number."""
        self._passes = False
        self._epoch = epoch

    def step_done(self) -> None:
        self._passes = True

    def note_end(self, number: int) -> None:
        """The loop around the script's line ends."""
        self._ended.update(self._around(number))

    def restore(self, number: int) -> list[str]:
        """If the loop around the script's line ends without a pass: set what it set before the resume. The variables
        that the snapshot does not hold: they have no value, or the one from before the loop."""
        if self._passes or not self._saved or (frame := next(script_frames(), None)) is None:
            return []
        place, names = _needed(frame, number)
        values = self._saved.pop(place, None)
        if values is None:
            return []
        own, ours = variables_of(frame), self._owned()
        needed = {name for name in names if name not in own or not known(own[name], ours)}
        found = {
            name: self._read(values[name])
            for name in sorted(needed & values.keys())
            if self._whole or name not in own
        }
        if found:
            _set(frame, found)
        return sorted(needed - values.keys())

    def _read(self, text: Any) -> Any:
        if text[0] == _TENSOR:
            return text[1].to(text[2])
        if text[0] == _EPOCH:
            assert self._epoch is not None, "a loop restores its variables after it has begun"
            return self._epoch(text[1])
        return read(text[1])

    def _around(self, number: int) -> dict[str, dict[str, Any]]:
        """The values of the innermost loop around the script's line."""
        frame = next(script_frames(), None)
        if frame is None:
            return {}
        place, names = _needed(frame, number)
        own, ours = (variables_of(frame), self._owned()) if names else ({}, set())
        wanted = {name: own[name] for name in sorted(names & own.keys()) if not known(own[name], ours)}
        written = {name: _written(value) for name, value in wanted.items()}
        return {place: {name: text for name, text in written.items() if text is not None}}


def _needed(frame: FrameType, number: int) -> tuple[str, frozenset[str]]:
    code = frame.f_code
    source = "".join(linecache.getlines(code.co_filename, frame.f_globals))
    line, names = needed_after(source, frame.f_lineno)
    return f"{number} {code.co_name}:{line}", names


@lru_cache(maxsize=64)
def needed_after(source: str, line: int) -> tuple[int, frozenset[str]]:
    """The line of the innermost loop around ``line``, or 0, and the variables that the loop sets and the code after it
    reads."""
    loops, scope = loops_around(parsed(source), line)
    if not loops:
        return 0, frozenset()
    loop = loops[0]
    flow = Flow()
    for statements in _after(scope, loop):
        flow.block(statements)
    read_there = {name.split(".")[0] for name in flow.exposed}
    return loop.lineno, frozenset(stores(loop) & read_there)


def _after(scope: ast.AST, loop: ast.stmt) -> list[list[ast.stmt]]:
    """The statements after ``loop``: its ``else``, and in each of the blocks that hold it, the innermost first."""
    found: list[list[ast.stmt]] = []
    at: ast.AST = scope
    while at is not loop:
        for _, block in ast.iter_fields(at):
            statements = block if isinstance(block, list) else [block]
            inside = [
                index
                for index, each in enumerate(statements)
                if isinstance(each, ast.AST) and any(part is loop for part in ast.walk(each))
            ]
            if inside:
                index = inside[0]
                found.append([each for each in statements[index + 1 :] if isinstance(each, ast.stmt)])
                at = statements[index]
                break
        else:
            break
    return [getattr(loop, "orelse", []), *found[::-1]]


def _written(value: Any) -> Any:
    """As a snapshot can hold it; None for another value."""
    if isinstance(value, IndexedEpoch):
        return [_EPOCH, value.index]
    if isinstance(value, torch.Tensor):
        dense = value.layout is torch.strided and not (value.is_nested or value.is_quantized or value.is_meta)
        fits = type(value) is torch.Tensor and dense and value.numel() * value.element_size() <= _MOST_BYTES
        return [_TENSOR, value.detach().clone(), value.device.type] if fits else None
    if type(value).__module__ == "numpy" and getattr(value, "ndim", 1) == 0 and hasattr(value, "item"):
        value = value.item()
    if mark(value) is OTHER:
        return None
    try:
        return ["plain", written(value)]
    except ValueError:
        return None


def _set(frame: FrameType, values: Mapping[str, Any]) -> None:
    if frame.f_locals is frame.f_globals:
        frame.f_globals.update(values)
        return
    frame.f_locals.update(values)
    if sys.version_info < (3, 13):  # from there on ``f_locals`` writes the variables themselves
        ctypes.pythonapi.PyFrame_LocalsToFast(ctypes.py_object(frame), ctypes.c_int(0))
