"""Plain values that models and optimizers keep in attributes: a count of steps, a temperature, a list of losses.

No ``state_dict`` has them. The first loop notes them when it begins, and each state those that have changed since. They
are restored in a process that begins with the same ones; else the script was edited, or chooses them anew.

An object of which other attributes change as well is left alone: a length whose tensors are cached beside it would
promise what is not there. The user is warned of these if their values change with the steps.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping, Sized
from typing import Any

import torch
from torch import nn
from torch.optim import Optimizer

from rankup.runtime.context import RunContext
from rankup.strategies.inner_optimizers import inner_optimizers

_SIMPLE = (bool, int, float, str, type(None))
_CONTAINERS: dict[str, Any] = {"list": list, "tuple": tuple, "set": set, "dict": dict, "deque": deque}
_DEPTH = 8  # of containers in each other
_MOST_ITEMS = 100_000  # of a container: a larger one is not copied at each save
_OTHER = object()
# torch's own of each module and optimizer; modes are restored by ``frozen.py``.
_TORCH = frozenset({*vars(nn.Module()), *vars(torch.optim.SGD([nn.Parameter(torch.zeros(1))], lr=1.0))}) | {
    "_step_count",
    "_opt_called",
    "_warned_capturable_if_run_uncaptured",
}

# Of each object, by attribute: [the value now], after the one when the loop began if there was one; ``_written``.
Changed = dict[str, dict[str, list[Any]]]


class PlainValues:
    """Of one run."""

    def __init__(self, run: RunContext) -> None:
        self._run = run
        self._begun: dict[str, dict[str, Any]] = {}
        self._others: dict[str, dict[str, Any]] = {}
        self._after_first_step: dict[str, dict[str, Any]] | None = None

    def begin(self) -> None:
        """A stage of the training begins, or is about to be resumed."""
        self._begun = self._now()
        self._others = {place: _others(thing) for place, thing in self._things()}

    def state(self) -> Changed:
        """What has changed since the loop began, of objects of which nothing else has."""
        found: Changed = {}
        for place, thing in self._things():
            begun = self._begun.get(place, {})
            changed = {
                name: [*([begun[name]] if name in begun else []), value]
                for name, value in _plain(thing).items()
                if name not in begun or not _same(begun[name], value)
            }
            if changed and self._alone(place, thing):
                found[place] = changed
        return found

    def load(self, saved: Mapping[str, Mapping[str, list[Any]]]) -> None:
        """Restore what ``state`` gave, where this process has begun as that one had."""
        for place, thing in self._things():
            begun = self._begun.get(place, {})
            for name, (*before, value) in saved.get(place, {}).items():
                if _same(before, [begun[name]] if name in begun else []):
                    _put(vars(thing), name, _read(value))

    def first_step_done(self) -> None:
        """What a model computes once, in its first forward, does not change with the steps."""
        if self._after_first_step is None:
            self._after_first_step = self._now()

    def lost(self) -> list[str]:
        """What to say of each value that changes with the steps and is not restored, once per class and attribute."""
        said: dict[str, str] = {}
        before = self._after_first_step or {}
        for place, thing in self._things():
            if self._alone(place, thing):
                continue
            for name, value in _plain(thing).items():
                if not _same(before.get(place, {}).get(name, value), value):
                    where = f"{name} of {type(thing).__name__}"
                    how = (
                        f'a parameter group holds it: self.param_groups[0]["{name}"]'
                        if isinstance(thing, Optimizer)
                        else f'a buffer is saved: self.register_buffer("{name}", torch.tensor(…))'
                    )
                    said[where] = (
                        f"{where} changes in training, as other attributes of it do that no snapshot holds: after a "
                        f"resume it starts again, unless the script sets it in each step or before each epoch; {how}"
                    )
        return list(said.values())

    def _now(self) -> dict[str, dict[str, Any]]:
        return {place: _plain(thing) for place, thing in self._things()}

    def _alone(self, place: str, thing: object) -> bool:
        return _others(thing) == self._others.get(place)

    def _things(self) -> Iterator[tuple[str, Any]]:
        modules = {f"model {index}": model for index, model in enumerate(self._run.models)}
        modules |= {
            name: thing for name, thing in self._run.registered.items() if isinstance(thing, nn.Module)
        }
        for where, model in modules.items():
            for name, module in model.named_modules():
                yield f"{where}/{name}", module
        for index, optimizer in enumerate(self._run.optimizers):
            yield from _with_inner(f"optimizer {index}", optimizer)


def _with_inner(place: str, optimizer: object) -> Iterator[tuple[str, Any]]:
    if isinstance(optimizer, Optimizer):
        yield place, optimizer
        for name, inner in inner_optimizers(optimizer).items():
            yield from _with_inner(f"{place}/{name}", inner)


def _plain(thing: object) -> dict[str, Any]:
    """Of each plain attribute, ``_written``."""
    written = {name: _written(value) for name, value in vars(thing).items() if name not in _TORCH}
    return {name: value for name, value in written.items() if value is not _OTHER}


def _written(value: Any, depth: int = _DEPTH) -> Any:
    """``value`` as a snapshot can hold it: itself, or a container as [kind, length at most, items]; else ``_OTHER``."""
    if type(value) in _SIMPLE:
        return value
    kind = type(value).__name__
    if _CONTAINERS.get(kind) is not type(value) or len(value) > _MOST_ITEMS or depth == 0:
        return _OTHER
    items = [_written(item, depth - 1) for item in (value.items() if kind == "dict" else value)]
    if any(item is _OTHER for item in items):
        return _OTHER
    return [kind, getattr(value, "maxlen", None), sorted(items, key=repr) if kind == "set" else items]


def _read(written: Any) -> Any:
    """What was ``_written``."""
    if not isinstance(written, list):
        return written
    kind, longest, items = written
    values = [_read(item) for item in items]
    return deque(values, longest) if kind == "deque" else _CONTAINERS[kind](values)


def _put(attributes: dict[str, Any], name: str, value: Any) -> None:
    """In place, since another variable may hold the same container."""
    held = attributes.get(name)
    if isinstance(held, (list, deque)) and type(held) is type(value):
        held.clear()
        held.extend(value)
    elif isinstance(held, (set, dict)) and type(held) is type(value):
        held.clear()
        held.update(value)
    else:
        attributes[name] = value


def _same(first: Any, second: Any) -> bool:
    """NaN is the same as NaN, and 1 is not True."""
    return type(first) is type(second) and repr(first) == repr(second)


def _others(thing: object) -> dict[str, tuple[Any, ...]]:
    """What tells whether another attribute has changed: which object it is, and how much it contains."""
    return {
        name: (id(value), *_amount(value))
        for name, value in vars(thing).items()
        if name not in _TORCH and _written(value) is _OTHER
    }


def _amount(value: object) -> tuple[int, ...]:
    if isinstance(value, torch.Tensor):
        return (value._version,)
    if isinstance(value, (nn.Module, Optimizer)):
        return ()  # things of their own
    if isinstance(value, Sized):
        return (len(value),)
    return (len(vars(value)),) if hasattr(value, "__dict__") else ()
