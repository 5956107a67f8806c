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
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Iterator, Mapping, Sized
from dataclasses import dataclass
from enum import Enum
from inspect import CO_OPTIMIZED
from itertools import islice
from types import CodeType, FrameType
from typing import Any

import torch
from torch import nn

from rankup.runtime.call_site import place
from rankup.runtime.checkpointing.attributes import OTHER, array_digest, content, mark, same
from rankup.runtime.checkpointing.carried_names import Carried, carried_around, carried_attributes
from rankup.runtime.checkpointing.plain_values import PlainValues
from rankup.runtime.checkpointing.script_objects import NOTHING, Space, file_of, held, home, iterator_mark
from rankup.runtime.checkpointing.untracked_state import within
from rankup.runtime.context import RunContext
from rankup.runtime.tracing.script_variables import is_library, script_frames, variables_of

_SIMPLE = (bool, int, float, str, type(None))
_DEPTH = 2  # of objects in each other
_LONGEST = 40  # characters of a value in a message
_ABSENT = object()  # a key that a dict does not have yet
_DICTS = (dict, OrderedDict, Counter, defaultdict)
_SAMPLED = 256  # numbers of a large tensor
_NESTED = 5  # containers in each other
_MOST_ITEMS = 1000  # of containers of other things than plain values


@dataclass
class _Value:
    """``mark`` tells whether it has changed, also in another process if it is ``plain``."""

    mark: Any
    plain: bool
    text: str
    where: str  # the loop
    kind: str = ""  # "number" or "container", of those that can be registered


class CarriedVariables:
    """Of one run, on rank 0."""

    def __init__(self, run: RunContext, plain: PlainValues) -> None:
        self._run = run
        self._plain = plain
        self._begun: dict[str, _Value] = {}
        self._inner: dict[str, _Value] = {}
        self._saved: dict[str, list[Any]] = {}
        self._said: set[str] = set()
        # Names of what other parts of the state have, and their loops: at the last look, and when the loop began.
        self._ours: dict[str, str] = {}
        self._owned: dict[str, str] = {}
        self._steps = 0
        self._loops: dict[tuple[CodeType, int], tuple[Carried, ...]] = {}

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
        self._loops.clear()
        self._saved = self._saved if warn else {}
        self._begun, self._inner, self._steps = self._now(), {}, 0
        self._owned = dict(self._ours)
        self._warn_of_lost(self._begun)

    def epoch_begins(self, done: int) -> None:
        """The first batch of an epoch is next, or the first one after a resume, with ``done`` steps before it."""
        self._loops.clear()  # a variable may hold another object by now, with other methods
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
            if name in now and not self._named(name) and not _unchanged(before, now[name])
        }
        self._said |= set(changed)
        for where, names in _by_loop(changed).items():
            several = len(names) > 1
            _warn(
                f"the loop at {where} carries {_listed([_spoken(name) for name in names])} from one pass to the next, "
                f"and no snapshot has {'them' if several else 'it'}: after a resume "
                f"{'they begin again with their first values' if several else 'it begins again with its first value'}; "
                + _advice(self._begun, changed, names)
            )

    def _warn_of_replaced(self, now: Mapping[str, _Value]) -> None:
        """Of names that held a registered object, and hold another one now: ``ema = {…}`` in the loop's body."""
        for key in sorted(self._owned.keys() & now.keys() - self._said):
            self._said.add(key)
            name = _spoken(key)
            _warn(
                f"the loop at {self._owned[key]} puts another object into {name}, which was registered or prepared: "
                "snapshots have the object from before the loop, and a resume does not restore the new one; change it "
                f"in place: {name}.copy_(…) for a tensor, {name}.update(…) for a dict, {name}[:] = … for a list"
            )

    def _named(self, name: str) -> bool:
        """Also if all of the dict is."""
        return name in self._said or (name.endswith("]") and name.rpartition(".")[0] in self._said)

    def _warn_of_lost(self, now: Mapping[str, _Value], done: int = 0) -> None:
        """``done``: steps of this epoch before the resume."""
        lost = {
            name: value
            for name, value in now.items()
            if name in self._saved and _lost(value, *self._saved[name])
        }
        self._said |= set(lost)
        for where, names in _by_loop(lost).items():
            each = [f"{_spoken(name)} ({_both(self._saved[name][1], lost[name].text)})" for name in names]
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
        """By ``_key``. Of one object, as an outer frame names it."""
        if not self._run.world.is_main:
            return {}
        found: dict[str, _Value] = {}
        self._ours = {}
        seen: set[tuple[int, str]] = set()
        ours = {id(thing) for _, thing in self._plain.things()} | within(self._run.registered.values())
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
        found: dict[str, _Value],
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
            for name, value, holder in _variables(variables, loop, ours):
                if name in names:
                    continue
                names.add(name)
                key = f"{_scope(name.split('.')[0], frame, own, frames)}:{name}"
                if _known(value, ours):
                    self._ours.setdefault(key, where)
                    continue
                if holder is not None:
                    last = name.rpartition(".")[2]
                    place_of = (home(holder, last), last)
                elif name not in own or not frame.f_code.co_flags & CO_OPTIMIZED:
                    place_of = (id(frame.f_globals), name)
                elif type(value) in (*_SIMPLE, tuple):  # equal ones may be one object
                    place_of = (id(frame), name)
                else:
                    place_of = (id(value), "")
                if place_of in seen:
                    continue
                seen.add(place_of)
                if key not in found and (seen_value := _seen(value, where)) is not None:
                    found[key] = seen_value


def _scope(root: str, frame: FrameType, own: Mapping[str, Any], frames: list[FrameType]) -> str:
    """The function that a variable belongs to, "" for the module's: functions may use one name for several things."""
    if not frame.f_code.co_flags & CO_OPTIMIZED or root not in own:
        return ""
    if root in frame.f_code.co_freevars:
        owners = [each for each in frames if root in each.f_code.co_cellvars]
        return owners[0].f_code.co_name if owners else ""
    return frame.f_code.co_name


def _variables(variables: Mapping[str, Any], loop: Carried, ours: set[int]) -> Iterator[tuple[str, Any, Any]]:
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
    for attribute in rest:
        # Of a run's and of prepared objects other parts of the state take care.
        hidden = _known(value, ours) or _of_library(value)
        value, holder = NOTHING if hidden else held(value, attribute), value
        if value is NOTHING and type(holder) in _DICTS:
            value = _ABSENT
    if value is not NOTHING:
        yield from _with_attributes(name, value, holder, loop, ours, _DEPTH)


def _with_attributes(
    name: str, value: Any, holder: Any, loop: Carried, ours: set[int], depth: int
) -> Iterator[tuple[str, Any, Any]]:
    yield name, value, holder
    if (
        _known(value, ours)
        or not depth
        or isinstance(value, (type, Enum))
        or _of_library(value)
        or _has_state(value)
    ):
        return
    for attribute in sorted(_carried_of(type(value))):
        inside = held(value, attribute)
        inner = f"{name}.{attribute}"
        if inside is not NOTHING and inner not in loop.anew:
            yield from _with_attributes(inner, inside, value, loop, ours, depth - 1)


def _known(value: Any, ours: set[int]) -> bool:
    """Whether another part of the state has it. Equal numbers may be one object."""
    return id(value) in ours and not isinstance(value, _SIMPLE)


def _has_state(value: Any) -> bool:
    """Whether the warning of what is not registered speaks of it. A module's attributes are in no ``state_dict``."""
    return not isinstance(value, nn.Module) and hasattr(type(value), "state_dict")


def _of_library(value: Any) -> bool:
    """Also what has a class of which there is no source. Not a plain holder of attributes."""
    if isinstance(value, dict) or type(value).__name__ in ("SimpleNamespace", "Namespace"):
        return False
    return not (path := file_of(value)) or is_library(path)


def _carried_of(kind: type) -> set[str]:
    found: set[str] = set()
    for each in kind.__mro__:
        if (path := file_of(each)) and not is_library(path):
            found |= carried_attributes("".join(linecache.getlines(path)), each.__qualname__)
    return found


def _seen(value: Any, where: str) -> _Value | None:
    try:
        found = _looked_at(value, where)
    except Exception:  # of an object of the script, or of a library, that cannot be looked at
        return None
    of_numpy = type(value).__module__ == "numpy"
    scalar = of_numpy and getattr(value, "ndim", 1) == 0
    if scalar or (isinstance(value, (*_SIMPLE, tuple)) and not isinstance(value, Enum)):
        found.kind = "number"
    elif of_numpy or isinstance(value, torch.Tensor):
        found.kind = "container"
    elif isinstance(value, (list, dict, set, deque)):
        items = [*islice(value.values() if isinstance(value, dict) else value, _MOST_ITEMS)]
        own = any(hasattr(item, "__dict__") and not isinstance(item, torch.Tensor) for item in items)
        found.kind = "objects" if own else "container"
    return found


def _looked_at(value: Any, where: str) -> _Value:
    if type(value).__module__ == "numpy" and getattr(value, "ndim", 1) == 0:
        value = value.item()
    if value is _ABSENT:
        return _Value("absent", True, "nothing", where)
    text = _shown(value)
    if text_and_mark := iterator_mark(value):
        return _Value(text_and_mark[1], True, text_and_mark[0], where)
    if isinstance(value, Enum):
        return _Value(f"{type(value).__name__}.{value.name}", True, str(value), where)
    for kind in (dict, list, tuple):
        if isinstance(value, kind) and type(value) is not kind:  # a Counter, a named tuple
            value = kind(value)
    if (found := mark(value)) is not OTHER:
        long = isinstance(found, str) and len(found) > _LONGEST
        return _Value(hashlib.sha256(found.encode()).hexdigest() if long else found, True, text, where)
    if digest := array_digest(value):
        return _Value(digest, True, text, where)
    if written := _written(value):
        return _Value(written, True, text, where)
    if isinstance(value, torch.Tensor):
        version = 0 if value.is_inference() else value._version
        return _Value((id(value), version, _sampled(value)), False, text, where)
    if isinstance(value, (list, dict, tuple, set, deque)):
        return _Value((id(value), *content(value)), False, text, where)
    if isinstance(value, nn.Module):
        return _Value(("a module", id(value)), False, text, where, "module")
    return _Value("an object", False, text, where)  # which may be there or not


def _sampled(value: torch.Tensor) -> str:
    """Of some numbers of a large tensor on the CPU: ``queue.data[…] = loss`` does not count as a new version."""
    dense = value.layout is torch.strided and not (value.is_nested or value.is_quantized)
    if not dense or value.device.type != "cpu" or not value.is_contiguous():
        return ""
    every = max(1, value.numel() // _SAMPLED)
    flat = value.detach().view(-1)
    return array_digest(torch.cat([flat[:_SAMPLED], flat[::every][:_SAMPLED]]))


def _written(value: Any) -> str:
    """A digest, alike in another process, of a container of plain values, small arrays and objects of the script's own
    classes (``{"loss": AverageMeter()}``); "" if it holds something else, or very much."""
    budget = [_MOST_ITEMS]

    def each(item: Any, depth: int) -> Any:
        budget[0] -= 1
        if budget[0] < 0 or depth < 0:
            raise ValueError
        if (found := mark(item)) is not OTHER:
            return found
        if digest := array_digest(item):
            return digest
        if _has_state(item):  # it is registered, or another warning speaks of it
            return type(item).__name__
        if type(item) is dict or type(item) in (list, tuple, deque):
            items = item.items() if isinstance(item, dict) else item
            return [type(item).__name__, *(each(inner, depth - 1) for inner in items)]
        if (
            type(item).__module__ == "numpy"
            or isinstance(item, (nn.Module, torch.Tensor))
            or _of_library(item)
        ):
            raise ValueError
        return [type(item).__name__, *(each(inner, depth - 1) for inner in sorted(vars(item).items()))]

    try:
        if not isinstance(value, (dict, list, tuple, deque)) or len(value) > _MOST_ITEMS:
            return ""
        return hashlib.sha256(repr(each(value, _NESTED)).encode()).hexdigest()
    except (ValueError, TypeError):
        return ""


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
    if isinstance(value, Sized) and getattr(value, "shape", 1) != ():
        return f"{type(value).__name__} of {len(value)}"
    return f"a {type(value).__name__}"


def _by_loop(values: Mapping[str, _Value]) -> dict[str, list[str]]:
    """Names by the loop that carries them."""
    found: dict[str, list[str]] = {}
    for name, value in values.items():
        if any(name.startswith(f"{other}.[") for other in values):
            continue  # the whole dict is named
        found.setdefault(value.where, []).append(name)
    return found


def _listed(names: list[str]) -> str:
    return ", ".join(names[:-1]) + f" and {names[-1]}" if len(names) > 1 else names[0]


def _spoken(key: str) -> str:
    """``self.metrics["loss"]``."""
    name = key.partition(":")[2]
    return "".join(f'["{part[1:-1]}"]' if part[0] == "[" else f".{part}" for part in name.split("."))[1:]


def _short(key: str) -> str:
    """For an argument: of ``history["loss"]`` the dict."""
    return next(part for part in reversed(key.partition(":")[2].split(".")) if part[0] != "[")


def _advice(begun: Mapping[str, _Value], values: Mapping[str, _Value], names: list[str]) -> str:
    """What to do, for the first one of each kind."""
    first: dict[str, str] = {}
    for name in names:
        kind = "container" if "[" in name and values[name].kind == "number" else values[name].kind
        first.setdefault(kind, name)
    said = []
    for kind, name in first.items():
        short = _short(name)
        if kind == "number":
            said.append(
                f"values = run.register({short}=…) before the loop, and values.{short} in place of {_spoken(name)}"
            )
        elif kind == "container":
            whole = _spoken(name).partition("[")[0]
            none = begun[name].text == "None"  # a registered None cannot become a dict
            first_value = f"begin {whole} with a value of its type instead of None, " if none else ""
            said.append(f"{first_value}run.register({short}={whole}) before the loop, and change it in place")
        elif kind == "module":
            said.append(
                f"run.register({short}={_spoken(name)}) before the loop, and {short}.load_state_dict(…) instead of a "
                "new module"
            )
        elif kind == "objects":
            said.append(
                f"give the objects in {_spoken(name)} the methods state_dict and load_state_dict, and run.register "
                "each of them before the loop"
            )
        else:
            said.append(
                f"compute {_spoken(name)} from epoch.index or run.global_step, or register what it is made of"
            )
    return "; ".join(said)


def _both(saved: str, now: str) -> str:
    if saved == now:  # a list of 1, twice
        return f"{now}, with other values than when it was saved"
    return f"{saved} when it was saved, {now} now"


def _warn(said: str) -> None:
    print(f"warning: {said}", file=sys.stderr, flush=True)
