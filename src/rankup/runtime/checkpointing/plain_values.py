"""Plain values that models, optimizers and data sets keep in attributes: a temperature that ``forward`` lowers, a count
of steps, the stage of a curriculum.

No ``state_dict`` has them. The first loop notes them when it begins, and each state those that have changed since. They
are restored in a process that begins with the same ones; else the script was edited, or chooses them anew.

An object of which other attributes change as well is left alone: a length whose tensors are cached beside it would
promise what is not there. The user is warned of these if their values change with the steps.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping, Sized
from itertools import islice
from typing import Any

import torch
from torch import nn
from torch.optim import Optimizer

from rankup.runtime.context import RunContext
from rankup.strategies.inner_optimizers import inner_optimizers

_PLAIN = (bool, int, float, str, type(None))
# torch's own of each module and optimizer; modes are restored by ``frozen.py``.
_TORCH = frozenset({*vars(nn.Module()), *vars(torch.optim.SGD([nn.Parameter(torch.zeros(1))], lr=1.0))}) | {
    "_step_count",
    "_opt_called",
    "_warned_capturable_if_run_uncaptured",
}

_LOOKED_AT = 64  # items of a collection
_KEPT = 2**20  # elements of a tensor
_COUNTED = 1024  # a longer one is a log, or data

# Of each object, by attribute: [the value now], after the one when the loop began if there was one.
Changed = dict[str, dict[str, list[Any]]]


class PlainValues:
    """Of one run."""

    def __init__(self, run: RunContext) -> None:
        self._run = run
        self._begun: dict[str, dict[str, Any]] = {}
        self._others: dict[str, dict[str, Any]] = {}
        self._loaded = False  # before the loop, by run.state: the values then are not those of the beginning
        self._after_first_step: dict[str, dict[str, Any]] | None = None
        self._collections: dict[str, dict[str, str]] = {}
        self._kept: list[Any] = []

    def begin(self) -> None:
        """A stage of the training begins, or is about to be resumed."""
        if self._loaded:
            self._loaded = False
            return
        self._note()

    def _note(self) -> None:
        self._begun = self._now()
        self._others = {place: _others(thing) for place, thing in self._things()}
        # Else another object could get the id of one that is gone.
        self._kept = [
            value
            for _, thing in self._things()
            for value in vars(thing).values()
            if not isinstance(value, torch.Tensor) or value.numel() <= _KEPT
        ]

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
        if not self._begun:
            self._note()
            self._loaded = True
        for place, thing in self._things():
            begun = self._begun.get(place, {})
            for name, (*before, value) in saved.get(place, {}).items():
                if _same(before, [begun[name]] if name in begun else []):
                    vars(thing)[name] = value

    def first_step_done(self) -> None:
        """What a model computes once, in its first forward, does not change with the steps."""
        if self._after_first_step is None:
            self._after_first_step = self._now()
            self._collections = {place: _collections(thing) for place, thing in self._things()}
            for place, found in self._collections.items():
                for name in found.keys() - self._others.get(place, {}).keys():
                    del found[name]  # made in the first forward, as what is only shown or cached is

    def lost(self) -> list[str]:
        """What to say of each value that changes with the steps and is not restored, once per class and attribute."""
        said: dict[str, str] = {}
        before = self._after_first_step or {}
        for place, thing in self._things():
            of_data = place.startswith("data ")  # which may cache what it has read
            early = {} if of_data else self._collections.get(place, {})
            for name, text in _collections(thing).items():
                if early.get(name, text) != text:
                    where = f"{name} of {type(thing).__name__}"
                    said[where] = (
                        f"{where}, a {type(vars(thing)[name]).__name__}, changes in training and is in no snapshot: "
                        f"after a resume it begins again; use a buffer or a plain number, or run.register({name}=…) "
                        "before the loop, and change it in place"
                    )
            begun = self._others.get(place, {}) if of_data else {}
            for name, (now, *_) in _others(thing).items():
                if name in begun and begun[name][0] != now:
                    where = f"{name} of {type(thing).__name__}"
                    said[where] = (
                        f"{where} (a data set) was replaced in training, and is in no snapshot; if it was drawn, each "
                        "process may have drawn its own: make it from epoch.index alone, before the inner loop "
                        "(torch.Generator().manual_seed(epoch.index)), so that every process and a resume make the same"
                    )
            if self._alone(place, thing):
                continue
            for name, value in _plain(thing).items():
                if not _same(before.get(place, {}).get(name, value), value):
                    where = f"{name} of {type(thing).__name__}"
                    how = (
                        f'a parameter group holds it: self.param_groups[0]["{name}"]'
                        if isinstance(thing, Optimizer)
                        else "set it by epoch.index before the inner loop"
                        if of_data
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
        for index, feed in enumerate(self._run.feeds):
            data = getattr(feed, "dataset", None)
            if hasattr(data, "__dict__"):
                yield f"data {index}", data
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
    return {
        name: value for name, value in vars(thing).items() if type(value) in _PLAIN and name not in _TORCH
    }


def _collections(thing: object) -> dict[str, str]:
    """What collections of plain values hold, by attribute, and tensors of one number."""
    found = {}
    for name, value in vars(thing).items():
        if name not in _TORCH and (text := _text(value)):
            found[name] = text
    return found


def _text(value: object) -> str:
    if isinstance(value, torch.Tensor):
        whole = value.numel() == 1 and value.device.type == "cpu" and not value.requires_grad
        return repr(value.item()) if whole and type(value) is torch.Tensor else ""
    if not isinstance(value, (list, dict, deque)) or len(value) > _COUNTED:
        return ""
    items = value.values() if isinstance(value, dict) else value
    return repr(value) if all(type(each) in _PLAIN for each in items) else ""


def _same(first: Any, second: Any) -> bool:
    """NaN is the same as NaN, and 1 is not True."""
    return type(first) is type(second) and repr(first) == repr(second)


def _others(thing: object) -> dict[str, tuple[Any, ...]]:
    """What tells whether another attribute has changed: which object it is, and what it contains."""
    return {
        name: (id(value), *_content(value))
        for name, value in vars(thing).items()
        if type(value) not in _PLAIN and name not in _TORCH
    }


def _content(value: object, depth: int = 2) -> tuple[Any, ...]:
    """Of large collections a part; nothing is read from tensors."""
    if isinstance(value, torch.Tensor):
        return (value._version,)
    if isinstance(value, (nn.Module, Optimizer)):
        return ()  # things of their own
    if depth and isinstance(value, Mapping):
        items = [*islice(value.items(), _LOOKED_AT)]
        return (len(value), *((key, _item(each, depth - 1)) for key, each in items))
    if depth and isinstance(value, (list, tuple, deque)):
        every = max(1, len(value) // _LOOKED_AT)
        return (len(value), *(_item(each, depth - 1) for each in islice(value, 0, None, every)))
    if isinstance(value, Sized):
        return (len(value),)
    if depth and hasattr(value, "__dict__"):
        return tuple((name, _item(each, 0)) for name, each in vars(value).items())
    return ()


def _item(value: object, depth: int) -> Any:
    return repr(value) if type(value) in _PLAIN else (id(value), *_content(value, depth))
