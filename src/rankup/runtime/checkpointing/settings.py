"""The settings of a script, besides its model: recorded with each snapshot, so that a change is noticed at a resume.

A snapshot restores an optimizer's options and a schedule's constants. So a learning rate that was edited between two
attempts would silently keep its saved value. The functions ``describe_…`` give the settings as JSON; ``differences``
compares two of them. A run may resume with another number of processes, strategy, number of loader workers or epochs,
snapshot interval or implementation of kernels (``IMPLEMENTATION``): these are not recorded.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler, ReduceLROnPlateau

from rankup.runtime.context import RunContext

IMPLEMENTATION = ("fused", "foreach", "capturable", "differentiable")
Settings = dict[
    str, Any
]  # {"run": {…}, "optimizers": [{"class", "groups": […]}], "schedules": {name: …}, "data": […], "layers": […]}
_MISSING = "not set"
# Public attributes of torch's schedules that count; a script that loads a state of its own into one begins with others.
_COUNTS = ("last_epoch", "best", "num_bad_epochs", "cooldown_counter", "T_cur", "T_i")


@dataclass(frozen=True)
class SettingsChange:
    """``place`` is the path in the settings; ``restorable``: whether a snapshot can restore the old value."""

    name: str
    old: Any
    new: Any
    place: tuple[Any, ...]
    restorable: bool

    def __str__(self) -> str:
        old, new = _shown(self.old), _shown(self.new)
        if old == new:
            old, new = repr(self.old), repr(self.new)
        return f"{self.name}: {old} when saved, {new} now"


def describe_run(run: RunContext) -> Settings:
    return {"precision": run.precision.name, "exact": run.strategy.exact}


def describe_optimizer(optimizer: Optimizer | None, asked: Mapping[str, Any]) -> Settings:
    """``asked``: what ``prepare`` got beside it, as ``clip``."""
    if not isinstance(optimizer, Optimizer):
        return {"class": None, "groups": [], **asked}
    return {
        "class": type(optimizer).__name__,
        "groups": [
            _plain({k: v for k, v in group.items() if k != "params" and k not in IMPLEMENTATION})
            for group in optimizer.param_groups
        ],
        **asked,
    }


def describe_layers(model: nn.Module) -> dict[str, str]:
    """torch's own layers without parameters: activations, dropout, pooling. No shape of a weight tells of them."""
    return {
        name: repr(layer)
        for name, layer in model.named_modules()
        if type(layer).__module__.startswith("torch.nn.modules.")
        and next(layer.children(), None) is None
        and next(layer.parameters(), None) is None
    }


def other_layers(old: list[dict[str, str]], new: list[dict[str, str]]) -> list[str]:
    """Layers with one name that differ between two versions of the models."""
    return [
        f"{name}: {was[name]} when saved, {layer} now"
        for was, now in zip(old, new, strict=False)
        for name, layer in now.items()
        if was.get(name, layer) != layer
    ]


def is_schedule(thing: object) -> bool:
    return isinstance(thing, (LRScheduler, ReduceLROnPlateau))


def parts(schedule: Any) -> Iterator[Any]:
    """The schedule, and those of which it consists."""
    yield schedule
    for inner in getattr(schedule, "_schedulers", []):
        yield from parts(inner)


def constants(schedule: Any) -> dict[str, Any]:
    """A schedule's public attributes that are plain: ``step_size``, ``gamma``, ``T_max``. Not the rates themselves."""
    named = {k: v for k, v in vars(schedule).items() if not k.startswith("_") or k == "_milestones"}
    for taken in ("base_lrs", "optimizer", "verbose", *_COUNTS):
        named.pop(taken, None)
    return {k: v for k, v in named.items() if _normal(v) is not _SKIP}


def describe_schedule(schedule: Any) -> Settings:
    return {
        "class": " of ".join(type(part).__name__ for part in parts(schedule)),
        "parts": [_plain(constants(part)) for part in parts(schedule)],
    }


def differences(old: Settings, new: Settings) -> list[SettingsChange]:
    """Every setting that differs; first the optimizers', then schedules', data and run."""
    found: list[SettingsChange] = []
    several = len(new["optimizers"]) > 1
    for index, (was, now) in enumerate(zip(old["optimizers"], new["optimizers"], strict=False)):
        owner = f"optimizer {index + 1}" if several else "the optimizer"
        found += _of_optimizer(was, now, owner, ("optimizers", index))
    for name, now in new["schedules"].items():
        was = old["schedules"].get(name)
        if was is not None:
            found += _of_schedule(was, now, name)
    for index, (was, now) in enumerate(zip(old["data"], new["data"], strict=False)):
        owner = f" of data set {index + 1}" if len(new["data"]) > 1 else " of the data"
        found += _of_mapping(was, now, owner, ("data", index), restorable=False)
    return found + _of_mapping(old["run"], new["run"], " of the run", ("run",), restorable=False)


def _of_optimizer(was: Settings, now: Settings, owner: str, place: tuple[Any, ...]) -> list[SettingsChange]:
    if was["class"] != now["class"]:
        return [SettingsChange(owner, was["class"], now["class"], (*place, "class"), restorable=False)]
    if len(was["groups"]) != len(now["groups"]):
        counts = (len(was["groups"]), len(now["groups"]))
        return [SettingsChange(f"parameter groups of {owner}", *counts, (*place, "groups"), restorable=False)]
    found: list[SettingsChange] = []
    several = len(now["groups"]) > 1
    for index, (theirs, mine) in enumerate(zip(was["groups"], now["groups"], strict=True)):
        whose = f" of {owner}, group {index + 1}" if several else f" of {owner}"
        # A schedule has changed lr already when it was made; the script's value is initial_lr.
        scheduled = theirs.get("initial_lr") != mine.get("initial_lr") and "initial_lr" in theirs
        hidden = ("lr", "max_lr", "min_lr") if scheduled and "initial_lr" in mine else ("initial_lr",)
        some = _of_mapping(theirs, mine, whose, (*place, "groups", index), restorable=True)
        found += [d for d in some if d.place[-1] not in hidden]
    plain = [{k: v for k, v in side.items() if k not in ("class", "groups")} for side in (was, now)]
    return found + _of_mapping(plain[0], plain[1], f" of {owner}", place, restorable=False)


def _of_schedule(was: Settings, now: Settings, name: str) -> list[SettingsChange]:
    if was["class"] != now["class"]:
        return [
            SettingsChange(name, was["class"], now["class"], ("schedules", name, "class"), restorable=False)
        ]
    found: list[SettingsChange] = []
    for index, (theirs, mine) in enumerate(zip(was["parts"], now["parts"], strict=False)):
        found += _of_mapping(theirs, mine, f" of {name}", ("schedules", name, index), restorable=True)
    return found


def _of_mapping(
    was: Mapping[str, Any], now: Mapping[str, Any], whose: str, place: tuple[Any, ...], *, restorable: bool
) -> list[SettingsChange]:
    return [
        SettingsChange(f"{key}{whose}", was[key], now[key], (*place, key), restorable)
        for key in now
        # An option that only one of the two versions of torch knows has not been changed.
        if key in was and was[key] != now[key]
    ]


class _Skip:
    pass


_SKIP = _Skip()


def _plain(values: Mapping[str, Any]) -> dict[str, Any]:
    normal = {str(key): _normal(value) for key, value in values.items()}
    return {key: value for key, value in normal.items() if value is not _SKIP}


def _normal(value: Any) -> Any:
    """As JSON returns it: tuples as lists, a tensor of one number as a number; ``_SKIP`` for other values."""
    if isinstance(value, torch.Tensor):
        return _normal(value.item()) if value.numel() == 1 and not value.is_meta else _SKIP
    if value is None or isinstance(value, (bool, str)):
        return value
    if isinstance(value, int):
        return int(value)
    if isinstance(value, float):
        return (
            float(value) if math.isfinite(value) else str(float(value))
        )  # JSON has no NaN, which equals nothing
    if isinstance(value, (list, tuple)):
        items = [_normal(item) for item in value]
        return _SKIP if any(item is _SKIP for item in items) else items
    if isinstance(value, Mapping):
        items = [_normal(item) for item in value.values()]
        pairs = dict(zip(map(str, value), items, strict=True))
        return _SKIP if any(item is _SKIP for item in items) else pairs
    return _SKIP


def _shown(value: Any) -> str:
    if isinstance(value, list):
        return f"({', '.join(_shown(item) for item in value)})"
    return f"{value:.6g}" if isinstance(value, float) else str(value)
