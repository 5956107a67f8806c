"""Variables of the script that a loop carries from one pass to the next: ``best``, ``patience``, a list of losses, the
counters of an object without a ``state_dict``. No snapshot has them, unless they are registered.

Rank 0 warns twice: in an attempt in which they change, of what a resume would lose; and in a resumed one, of what it
has lost, with the value that the snapshot notes. Sums over the steps of an epoch are lost if the epoch is resumed in
its middle: of these the second warning alone speaks, since most epochs are not.
"""

from __future__ import annotations

import hashlib
import linecache
import sys
from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from types import FrameType
from typing import Any

import torch
from torch import nn

from rankup.runtime.call_site import place
from rankup.runtime.checkpointing.attributes import OTHER, array_digest, content, mark, same
from rankup.runtime.checkpointing.carried_names import Carried, carried_around, carried_attributes
from rankup.runtime.checkpointing.plain_values import PlainValues
from rankup.runtime.checkpointing.untracked_state import within
from rankup.runtime.context import RunContext
from rankup.runtime.tracing.script_variables import is_library, script_frames, variables_of

_NOTHING = object()
_SIMPLE = (bool, int, float, str, type(None))
_DEPTH = 2  # of objects in each other
_LONGEST = 40  # characters of a value in a message


@dataclass
class _Value:
    """``mark`` tells whether it has changed, also in another process if it is ``plain``."""

    mark: Any
    plain: bool
    text: str
    where: str  # the loop


class CarriedVariables:
    """Of one run, on rank 0."""

    def __init__(self, run: RunContext, plain: PlainValues) -> None:
        self._run = run
        self._plain = plain
        self._begun: dict[str, _Value] = {}
        self._inner: dict[str, _Value] = {}
        self._saved: dict[str, list[Any]] = {}
        self._said: set[str] = set()
        self._ours: dict[
            str, str
        ] = {}  # names of what other parts of the state have, at the last look → the loop
        self._owned: dict[str, str] = {}  # the same when the loop began
        self._steps = 0

    def state(self) -> dict[str, list[Any]]:
        """What a snapshot notes of variables that have changed: [mark, text]; of those that are not plain what they
        were at first, [mark, text, True]."""
        found = {}
        begun = {**self._inner, **self._begun}
        for name, value in self._now().items():
            before = begun.get(name)
            if before is not None and _unchanged(before, value):
                continue
            if value.plain:
                found[name] = [value.mark, value.text]
            elif before is not None and before.plain:
                found[name] = [before.mark, value.text, True]
        return found

    def load(self, saved: Mapping[str, list[Any]]) -> None:
        self._saved = dict(saved)

    def begin(self, *, warn: bool) -> None:
        """A loop begins, and is restored if it is resumed."""
        self._saved = self._saved if warn else {}
        self._begun, self._inner, self._steps = self._now(), {}, 0
        self._owned = dict(self._ours)
        self._warn_of_lost(self._begun)

    def epoch_begins(self, done: int) -> None:
        """The first batch of an epoch is next, or the first one after a resume, with ``done`` steps before it."""
        now = self._now()
        self._inner = {name: value for name, value in now.items() if name not in self._begun}
        if done:
            self._warn_of_lost(self._inner, done)
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
            if name in now and name not in self._said and not _unchanged(before, now[name])
        }
        for where, names in _by_loop(changed).items():
            self._said |= set(names)
            one = names[0].rpartition(".")[2]
            _warn(
                f"the loop at {where} carries {_listed(names)} from one pass to the next, and no snapshot has "
                f"{'them' if len(names) > 1 else 'it'}: after a resume the loop begins with the value from before it; "
                f"values = run.register({one}=…) before the loop and values.{one} instead, or run.register of a list, "
                "a dict or an object with a state_dict"
            )

    def _warn_of_replaced(self, now: Mapping[str, _Value]) -> None:
        """Of names that held a registered object, and hold another one now: ``ema = {…}`` in the loop's body."""
        for name in sorted(self._owned.keys() & now.keys() - self._said):
            self._said.add(name)
            _warn(
                f"the loop at {self._owned[name]} puts another object into {name}, which was registered or prepared: "
                "snapshots have the object from before the loop, and a resume does not restore the new one; change it "
                f"in place: {name}.copy_(…) for a tensor, {name}.update(…) for a dict, {name}[:] = … for a list"
            )

    def _warn_of_lost(self, now: Mapping[str, _Value], done: int = 0) -> None:
        """``done``: steps of this epoch before the resume."""
        lost = {
            name: value
            for name, value in now.items()
            if name in self._saved and _lost(value, *self._saved[name])
        }
        for where, names in _by_loop(lost).items():
            self._said |= set(names)
            each = [
                f"{name} ({self._saved[name][1]} when it was saved, {lost[name].text} now)" for name in names
            ]
            if done:
                _warn(
                    f"this epoch is resumed after its step {done}, and variables of the loop at {where} lack these "
                    f"steps: {_listed(each)}; run.meter adds up across a resume, run.register restores other values"
                )
            else:
                _warn(
                    f"the loop at {where} carries variables that are in no snapshot, and this resume has lost them: "
                    f"{_listed(each)}; run.register before the loop restores them"
                )

    def _now(self) -> dict[str, _Value]:
        """By name, those of inner frames first."""
        if not self._run.world.is_main:
            return {}
        try:
            return self._read()
        except Exception:  # of an object of the script that is looked at: a warning must not end the run
            return {}

    def _read(self) -> dict[str, _Value]:
        ours = {id(thing) for _, thing in self._plain.things()} | within(self._run.registered.values())
        found: dict[str, _Value] = {}
        self._ours = {}
        for frame in script_frames():
            source = "".join(linecache.getlines(frame.f_code.co_filename, frame.f_globals))
            for loop in carried_around(source, frame.f_lineno):
                where = place(frame.f_code.co_filename, loop.line)
                for name, value in _variables(frame, loop, ours):
                    if _known(value, ours):
                        self._ours.setdefault(name, where)
                    elif name not in found:
                        found[name] = _seen(value, where)
        return found


def _variables(frame: FrameType, loop: Carried, ours: set[int]) -> Iterator[tuple[str, Any]]:
    variables = {**frame.f_globals, **variables_of(frame)}
    for name in sorted(loop.names):
        first, *rest = name.split(".")
        value = variables.get(first, _NOTHING)
        for attribute in rest:
            held = vars(value) if hasattr(value, "__dict__") else {}
            # Of a run's and of prepared objects other parts of the state take care.
            hidden = _known(value, ours) or _of_library(type(value))
            value = _NOTHING if hidden else held.get(attribute, _NOTHING)
        if value is _NOTHING:
            continue
        if _known(value, ours):
            yield name, value
        else:
            yield from _with_attributes(name, value, loop, ours, _DEPTH)


def _with_attributes(
    name: str, value: Any, loop: Carried, ours: set[int], depth: int
) -> Iterator[tuple[str, Any]]:
    yield name, value
    if _known(value, ours):
        return
    kind = type(value)
    if not depth or not hasattr(value, "__dict__") or _of_library(kind) or _has_state(value):
        return
    for attribute in sorted(_carried_of(kind)):
        held = vars(value).get(attribute, _NOTHING)
        inner = f"{name}.{attribute}"
        if held is not _NOTHING and inner not in loop.anew:
            yield from _with_attributes(inner, held, loop, ours, depth - 1)


def _known(value: Any, ours: set[int]) -> bool:
    """Whether another part of the state has it. Equal numbers may be one object."""
    return id(value) in ours and not isinstance(value, _SIMPLE)


def _has_state(value: Any) -> bool:
    """Whether the warning of what is not registered speaks of it. A module's attributes are in no ``state_dict``."""
    return not isinstance(value, nn.Module) and hasattr(type(value), "state_dict")


def _of_library(kind: type) -> bool:
    """Also a class of which there is no source. Not a plain holder of attributes."""
    if kind.__name__ in ("SimpleNamespace", "Namespace"):
        return False
    return not (path := _file_of(kind)) or is_library(path)


def _file_of(kind: type) -> str:
    module = sys.modules.get(kind.__module__)
    return str(getattr(module, "__file__", None) or "")


def _carried_of(kind: type) -> set[str]:
    found: set[str] = set()
    for each in kind.__mro__:
        if (path := _file_of(each)) and not is_library(path):
            found |= carried_attributes("".join(linecache.getlines(path)), each.__qualname__)
    return found


def _seen(value: Any, where: str) -> _Value:
    if type(value).__module__ == "numpy" and getattr(value, "ndim", 1) == 0:
        value = value.item()
    text = _shown(value)
    if isinstance(value, (dict, list)) and type(value) not in (dict, list):  # a Counter
        value = dict(value) if isinstance(value, dict) else list(value)
    if (found := mark(value)) is not OTHER:
        long = isinstance(found, str) and len(found) > _LONGEST
        return _Value(hashlib.sha256(found.encode()).hexdigest() if long else found, True, text, where)
    if digest := array_digest(value):
        return _Value(digest, True, text, where)
    if isinstance(value, torch.Tensor):
        return _Value((id(value), 0 if value.is_inference() else value._version), False, text, where)
    if isinstance(value, (list, dict, tuple, set, deque)):
        return _Value((id(value), *content(value)), False, text, where)
    return _Value("an object", False, text, where)  # which may be there or not


def _unchanged(before: _Value, now: _Value) -> bool:
    return before.plain is now.plain and same(before.mark, now.mark)


def _lost(now: _Value, mark: Any, text: str, as_at_first: bool = False) -> bool:
    """``mark``: of the value that was saved, or ``as_at_first`` of the one that it began with."""
    return same(mark, now.mark) is as_at_first


def _shown(value: Any) -> str:
    if isinstance(value, _SIMPLE):
        text = repr(value)
        return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…"
    if isinstance(value, torch.Tensor) and value.numel() == 1:
        return str(value.item())
    if hasattr(value, "__len__") and getattr(value, "shape", 1) != ():
        return f"{type(value).__name__} of {len(value)}"
    return f"a {type(value).__name__}"


def _by_loop(values: Mapping[str, _Value]) -> dict[str, list[str]]:
    """Names by the loop that carries them."""
    found: dict[str, list[str]] = {}
    for name, value in values.items():
        found.setdefault(value.where, []).append(name)
    return found


def _listed(names: list[str]) -> str:
    return ", ".join(names[:-1]) + f" and {names[-1]}" if len(names) > 1 else names[0]


def _warn(said: str) -> None:
    print(f"warning: {said}", file=sys.stderr, flush=True)
