"""The header of a loop over batches, after a resume: ``enumerate`` counts from 0 there, as at a beginning, and what
``zip`` pairs with the batches begins at its start. Rank 0 warns at the first batch.
"""

from __future__ import annotations

import ast
import linecache
from collections.abc import Iterator, Mapping
from inspect import CO_GENERATOR
from typing import Any

from rankup.runtime.call_site import place
from rankup.runtime.checkpointing.carried.messages import warn
from rankup.runtime.checkpointing.carried.syntax import is_read, loop_over, zips
from rankup.runtime.checkpointing.loop_variables import IndexedEpoch
from rankup.runtime.tracing.script_variables import script_frames, variables_of


def warn_of_enumerate(steps: int, in_epoch: int) -> None:
    """At the first batch after a resume, on rank 0: ``enumerate`` begins with 0 there, as at a beginning. ``steps``
    are done in all, ``in_epoch`` of them in this epoch."""
    where, header = _counting_loop()
    if not where or ".done" in header or ".global_step" in header:  # of an epoch with any name
        return
    flat = ".steps(" in header  # counts over epochs
    if done := steps if flat else in_epoch:
        instead = "run.global_step in the body" if flat else "enumerate(epoch, epoch.done)"
        warn(
            f"enumerate at {where} counts from 0 after this resume, and {done} "
            f"{'step was' if done == 1 else 'steps were'} done before it: what the loop computes from that number is "
            f"not what it would be without the interruption; {instead} goes on from {done}",
        )


def _counting_loop() -> tuple[str, str]:
    """Where the script's loop over the batches is, and its header, if it counts by ``enumerate`` and reads the number;
    else "". Generators of the script may lie between it and the batches, such as a bar of progress."""
    for frame in script_frames():
        code = frame.f_code
        source = "".join(linecache.getlines(code.co_filename, frame.f_globals))
        loop, scope = loop_over(source, frame.f_lineno)
        if loop is not None and "enumerate(" in (header := ast.unparse(loop.iter)):
            counts = loop.target.elts[0] if isinstance(loop.target, ast.Tuple) else loop.target
            unread = isinstance(counts, ast.Name) and not is_read(counts.id, loop, scope)
            return ("", "") if unread else (place(code.co_filename, frame.f_lineno), header)
        if not code.co_flags & CO_GENERATOR and code.co_name != "__next__":
            break
    return "", ""


def warn_of_zip(steps: int, in_epoch: int) -> None:
    """At the first batch after a resume, on rank 0: what ``zip`` pairs with the batches begins at its start, as at a
    beginning. ``steps`` are done in all, ``in_epoch`` of them in this epoch."""
    if (frame := next(script_frames(), None)) is None:
        return
    path = frame.f_code.co_filename
    variables = {**frame.f_globals, **variables_of(frame)}
    for call in zips("".join(linecache.getlines(path, frame.f_globals)), frame.f_lineno):
        flat = any(".steps(" in ast.unparse(each) for each in call.args)  # counts over epochs
        done = steps if flat else in_epoch
        others = _beside_batches(call, variables)
        if not done or not others or len(others) == len(call.args):
            continue
        behind = "run.global_step" if flat else "epoch.done"
        were = "step was" if done == 1 else "steps were"
        warn(
            f"zip at {place(path, call.lineno)} begins {' and '.join(others)} at the start after this resume, "
            f"and {done} {were} done before it: the batches meet other values than without the interruption; "
            f"itertools.islice({others[0]}, {behind}, None) goes on if the order is fixed, and one data set that "
            "yields both (torch.utils.data.StackDataset) is shuffled and resumed as a whole",
        )


def _beside_batches(call: ast.Call, variables: Mapping[str, Any]) -> list[str]:
    """Arguments that are not the batches, and begin anew with the call. An iterator that a variable holds goes on: the
    loop carries it."""
    found = []
    for each in call.args:
        text = ast.unparse(each)
        names = {part.id for part in ast.walk(each) if isinstance(part, ast.Name)}
        batches = ".steps(" in text or any(isinstance(variables.get(name), IndexedEpoch) for name in names)
        placed = ".done" in text or ".global_step" in text or "repeat(" in text
        if not batches and not placed and not isinstance(variables.get(text), Iterator):
            found.append(text)
    return found
