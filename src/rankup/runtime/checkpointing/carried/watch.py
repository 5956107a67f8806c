"""Variables of the script that a loop carries from one pass to the next: ``best``, ``patience``, a list of losses, the
counters of an object without a ``state_dict``. No snapshot has them, unless they are registered.

Rank 0 warns twice: in an attempt in which they change, of what a resume would lose; and in a resumed one, of what it
has lost, with the value that the snapshot notes. Sums over the steps of an epoch are lost if the epoch is resumed in
its middle: of these the second warning alone speaks, since most epochs are not.
"""

from __future__ import annotations

import linecache
from collections.abc import Mapping
from inspect import CO_OPTIMIZED
from types import CodeType, FrameType
from typing import Any

from rankup.runtime.call_site import place
from rankup.runtime.checkpointing.carried.frames import carried_of_frame, known, scope_of
from rankup.runtime.checkpointing.carried.messages import (
    advice,
    both,
    by_loop,
    by_sample,
    listed,
    spoken,
    warn,
)
from rankup.runtime.checkpointing.carried.names import Carried, carried_around
from rankup.runtime.checkpointing.carried.script_objects import Space, home
from rankup.runtime.checkpointing.carried.syntax import in_comprehension
from rankup.runtime.checkpointing.carried.values import SIMPLE, Value, is_lost, unchanged, value_of
from rankup.runtime.checkpointing.plain_values import PlainValues
from rankup.runtime.context import RunContext
from rankup.runtime.tracing.script_variables import script_frames, variables_of


class CarriedVariables:
    """Of one run, on rank 0."""

    def __init__(self, run: RunContext, plain: PlainValues) -> None:
        self._run = run
        self._plain = plain
        self._begun: dict[str, Value] = {}
        self._inner: dict[str, Value] = {}
        self._saved: dict[str, list[Any]] = {}
        self._said: set[str] = set()
        # Names of what other parts of the state have, and their loops: at the last look, and when the loop began.
        self._ours: dict[str, str] = {}
        self._owned: dict[str, str] = {}
        self._steps = 0
        self._looks = False
        self._epochs = 0
        self._loops: dict[tuple[CodeType, int], tuple[Carried, ...]] = {}

    def state(self) -> dict[str, list[Any]]:
        """What a snapshot notes of variables that have changed: [mark, text]; of those that are not plain what they
        were at first, [mark, text, True]."""
        found = {}
        begun = {**self._inner, **self._begun}
        for name, value in self._now().items():
            before = begun.get(name)
            if before is not None and unchanged(before, value):
                continue
            if value.plain:
                found[name] = [value.mark, value.text]
            elif before is not None and before.plain:
                found[name] = [before.mark, value.text, True]
        return found

    def load(self, saved: Mapping[str, list[Any]]) -> None:
        self._saved = dict(saved)

    def begin(self, *, warn: bool, saves: bool) -> None:
        """A loop begins, and is restored if it is resumed. ``saves``: whether it has snapshots."""
        self._loops.clear()
        self._saved = self._saved if warn else {}
        self._looks = saves or bool(self._saved)  # by ``run.state``
        if not self._looks:
            return
        self._begun, self._inner, self._steps = self._now(), {}, 0
        self._owned = dict(self._ours)
        self._warn_of_lost(self._begun)

    def epoch_begins(self, done: int) -> None:
        """The first batch of an epoch is next, or the first one after a resume, with ``done`` steps before it."""
        if not self._looks:
            return
        self._epochs += 1
        if self._epochs > 1 and self._epochs & (self._epochs - 1) == 0:
            self._loops.clear()  # a variable may hold another object by now, with other methods
        now = self._now()
        self._inner = {name: value for name, value in now.items() if name not in self._begun}
        if done:
            self._warn_of_lost(self._inner, done)
            self._warn_of_comprehension(done)
        self._saved = {}

    def step_done(self) -> None:
        self._steps += 1
        if self._steps & (self._steps - 1) == 0:
            self.warn_of_changed()

    def warn_of_changed(self) -> None:
        """What has changed since the loop began, and would begin again after a resume."""
        now = self._now()
        self._warn_of_replaced(now)
        changed = {
            name: now[name]
            for name, before in self._begun.items()
            if name in now and not self._named(name) and not unchanged(before, now[name])
        }
        self._said |= set(changed)
        for where, names in by_loop(changed).items():
            several = len(names) > 1
            warn(
                f"the loop at {where} carries {listed([spoken(name) for name in names])} from one pass to the next, "
                f"and no snapshot has {'them' if several else 'it'}: after a resume "
                f"{'they begin again with their first values' if several else 'it begins again with its first value'}; "
                + advice(self._begun, changed, names, dir(self._run.values))
                + by_sample({name: changed[name] for name in names}, self._lengths())
            )

    def _lengths(self) -> set[int]:
        """Samples of the data sets that are divided over ranks."""
        if self._run.world.world_size == 1:
            return set()
        shardings = (getattr(feed, "sharding", None) for feed in self._run.feeds)
        return {sharding.length for sharding in shardings if sharding is not None}

    def _warn_of_replaced(self, now: Mapping[str, Value]) -> None:
        """Of names that held a registered object, and hold another one now: ``ema = {…}`` in the loop's body."""
        for key in sorted(self._owned.keys() & now.keys() - self._said):
            self._said.add(key)
            name = spoken(key)
            warn(
                f"the loop at {self._owned[key]} puts another object into {name}, which was registered or prepared: "
                "snapshots have the object from before the loop, and a resume does not restore the new one; change it "
                f"in place: {name}.copy_(…) for a tensor, {name}.update(…) for a dict, {name}[:] = … for a list"
            )

    def _named(self, name: str) -> bool:
        """Also if all of the dict is."""
        return name in self._said or (name.endswith("]") and name.rpartition(".")[0] in self._said)

    def _warn_of_lost(self, now: Mapping[str, Value], done: int = 0) -> None:
        """``done``: steps of this epoch before the resume."""
        lost = {
            name: value
            for name, value in now.items()
            if name in self._saved and is_lost(value, *self._saved[name])
        }
        self._said |= set(lost)
        for where, names in by_loop(lost).items():
            each = [f"{spoken(name)} ({both(self._saved[name][1], lost[name].text)})" for name in names]
            if done:
                counts = [
                    spoken(name)
                    for name in names
                    if (self._saved[name][1], lost[name].text) == (str(done), "0")
                ]
                begun = f"{counts[0]} = epoch.done before the inner loop counts its steps, " if counts else ""
                warn(
                    f"this epoch is resumed after its step {done}, and variables of the loop at {where} lack these "
                    f"steps: {listed(each)}; {begun}run.meter adds up across a resume, run.register restores other "
                    "values"
                )
            else:
                warn(
                    f"the loop at {where} carries variables that are in no snapshot, and this resume has lost them: "
                    f"{listed(each)}; run.register before the loop restores them"
                )

    def _warn_of_comprehension(self, done: int) -> None:
        frame = next(script_frames(), None)
        if frame is None or not self._run.world.is_main:
            return
        path = frame.f_code.co_filename
        if in_comprehension("".join(linecache.getlines(path, frame.f_globals)), frame.f_lineno):
            warn(
                f"this epoch is resumed after its step {done}, and the comprehension or call at "
                f"{place(path, frame.f_lineno)} has no value of these steps: add up by run.meter in a for loop, or "
                "append to a list that is registered"
            )

    def _now(self) -> dict[str, Value]:
        """By ``_key``. Of one object, as an outer frame names it."""
        if not self._run.world.is_main:
            return {}
        found: dict[str, Value] = {}
        self._ours = {}
        seen: set[tuple[int, str]] = set()
        ours = self._plain.owned()
        frames = [*script_frames()]
        for frame in reversed(frames):
            try:
                self._read(frame, frames, ours, seen, found)
            except Exception:  # of an object of the script that is looked at: a warning must not end the run
                continue
        return found

    def _read(
        self,
        frame: FrameType,
        frames: list[FrameType],
        ours: set[int],
        seen: set[tuple[int, str]],
        found: dict[str, Value],
    ) -> None:
        source = "".join(linecache.getlines(frame.f_code.co_filename, frame.f_globals))
        own = variables_of(frame)
        variables = {**frame.f_globals, **own}
        at = (frame.f_code, frame.f_lineno)
        if at not in self._loops:
            self._loops[at] = carried_around(source, frame.f_lineno, Space(variables, frame).called)
        names: set[str] = set()
        for loop in self._loops[at]:
            where = place(frame.f_code.co_filename, loop.line)
            for name, value, holder in carried_of_frame(variables, loop, ours):
                if name in names:
                    continue
                names.add(name)
                key = f"{scope_of(name.split('.')[0], frame, own, frames)}:{name}"
                if known(value, ours):
                    self._ours.setdefault(key, where)
                    continue
                if holder is not None:
                    last = name.rpartition(".")[2]
                    place_of = (home(holder, last), last)
                elif name not in own or not frame.f_code.co_flags & CO_OPTIMIZED:
                    place_of = (id(frame.f_globals), name)
                elif type(value) in (*SIMPLE, tuple):  # equal ones may be one object
                    place_of = (id(frame), name)
                else:
                    place_of = (id(value), "")
                if place_of in seen:
                    continue
                seen.add(place_of)
                if key not in found and (seen_value := value_of(value, where, ours)) is not None:
                    found[key] = seen_value
