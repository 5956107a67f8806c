"""The code before an inner loop runs again if its epoch is resumed in the middle: it must not change the state then.

In a training without an interruption it ran at the epoch's beginning. Random numbers that it draws are taken back, and
plain attributes that it sets; a change of anything else that the snapshot has restored is an error.
"""

from __future__ import annotations

import ast
import linecache
import sys
from collections.abc import Iterator, Mapping
from inspect import CO_GENERATOR
from typing import Any

from rankup.errors import RankupError
from rankup.runtime.call_site import place
from rankup.runtime.checkpointing.carried.syntax import is_read, loop_over, zips
from rankup.runtime.checkpointing.loop_variables import IndexedEpoch
from rankup.runtime.checkpointing.plain_values import PlainValues
from rankup.runtime.context import RunContext
from rankup.runtime.seed import rng_state, set_rng_state
from rankup.runtime.tracing.fingerprint import fingerprint
from rankup.runtime.tracing.script_variables import script_frames, variables_of


class ResumedEpoch:
    """Made when everything is restored; ``check`` when the first batch is next."""

    def __init__(self, run: RunContext, plain: PlainValues) -> None:
        self._run = run
        self._plain, self._values = plain, plain.state()
        self._random = rng_state()
        self._before = _fingerprints(run)

    def check(self) -> None:
        now = _fingerprints(self._run)
        changed = [name for name, mark in now.items() if mark != self._before.get(name)]
        if changed:
            raise RankupError(
                "changed-before-inner-loop",
                f"the code before the inner loop changes {changed[0]}, and the epoch is resumed in its middle: without "
                "the interruption this code ran at the epoch's beginning only",
                hint="if epoch.done == 0: …   # or move it after the inner loop, where it runs once per epoch",
                exit_code=1,
            )
        set_rng_state(self._random)
        self._plain.load(self._values)


def warn_of_enumerate(steps: int, in_epoch: int) -> None:
    """At the first batch after a resume, on rank 0: ``enumerate`` begins with 0 there, as at a beginning. ``steps``
    are done in all, ``in_epoch`` of them in this epoch."""
    where, header = _counting_loop()
    if not where or ".done" in header or ".global_step" in header:  # of an epoch with any name
        return
    flat = ".steps(" in header  # counts over epochs
    if done := steps if flat else in_epoch:
        instead = "run.global_step in the body" if flat else "enumerate(epoch, epoch.done)"
        print(
            f"warning: enumerate at {where} counts from 0 after this resume, and {done} "
            f"{'step was' if done == 1 else 'steps were'} done before it: what the loop computes from that number is "
            f"not what it would be without the interruption; {instead} goes on from {done}",
            file=sys.stderr,
            flush=True,
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
        print(
            f"warning: zip at {place(path, call.lineno)} begins {' and '.join(others)} at the start after this resume, "
            f"and {done} {were} done before it: the batches meet other values than without the interruption; "
            f"itertools.islice({others[0]}, {behind}, None) goes on if the order is fixed, and one data set that "
            "yields both (torch.utils.data.StackDataset) is shuffled and resumed as a whole",
            file=sys.stderr,
            flush=True,
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


def _fingerprints(run: RunContext) -> dict[str, str]:
    found = {}
    for name, thing in run.registered.items():
        if not getattr(thing, "timed", False):
            # How often a schedule was stepped: it may be set to the epoch again, by sched.step(epoch.index).
            state = {key: value for key, value in thing.state_dict().items() if key != "_step_count"}
            found[f"{name} (run.register)"] = fingerprint(state)
    for optimizer in run.optimizers:
        for group in getattr(optimizer, "param_groups", []):
            options = {option: value for option, value in group.items() if option != "params"}
            found[f"an option of {type(optimizer).__name__} ({len(found)})"] = fingerprint(options)
    for model in run.models:
        found[f"the weights of {type(model).__name__} ({len(found)})"] = fingerprint(list(model.parameters()))
    return found
