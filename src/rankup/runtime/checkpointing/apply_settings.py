"""How the script's settings replace those of a snapshot: in an optimizer, in a schedule, in a position."""

from __future__ import annotations

import copy
import inspect
import warnings
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.optim import Optimizer
from torch.optim.lr_scheduler import CyclicLR, LambdaLR, OneCycleLR

from rankup.runtime.checkpointing.settings import IMPLEMENTATION, SettingsChange, parts
from rankup.runtime.data.batches import DataFeed


@dataclass(frozen=True)
class OptimizerChange:
    """Of one optimizer: what changed, and the groups of its options: as the script has built them, as they were saved,
    and as they are described now."""

    changes: list[SettingsChange]
    script: list[dict[str, Any]]
    saved: list[dict[str, Any]]
    current: list[dict[str, Any]]

    def options(self, number: int, loaded: dict[str, Any]) -> dict[str, Any]:
        """The options of a parameter in group ``number``; ``loaded`` are those that were saved."""
        if number >= len(self.script):
            return loaded  # the training added this group later
        script = self.script[number]
        free = {option: script[option] for option in IMPLEMENTATION if option in script}
        if not self.changes:
            return {**loaded, **free}
        was = self.saved
        if self.changes[0].place[2:] == ("groups",) or number >= len(was):
            return dict(script)
        other = self.changes[0].place[2] == "class"
        made = dict(script) if other else {**loaded, **free}
        now = self.current[number]
        for option, value in now.items():
            if not other and value != was[number].get(option, value):
                made[option] = script[option]
        asked = [side.get("initial_lr", side.get("lr")) for side in (was[number], now)]
        if "lr" in loaded and None not in asked:
            before, after = asked
            made["lr"] = loaded["lr"]
            if before != after:
                made["lr"] = _scaled(loaded["lr"], before, after, script["lr"])
        return made

    def fits(self, optimizer: Optimizer, saved: set[str]) -> bool:
        """Whether ``saved`` are the fields of the state that this optimizer, as it is now, would have made."""
        if not self.changes or not saved:
            return True
        makes = _fields(optimizer, self.script)
        same_class = all(change.place[2:] != ("class",) for change in self.changes)
        return saved == makes or (makes is None and same_class)


def _scaled(rate: Any, was: Any, now: Any, script: Any) -> Any:
    """A schedule has changed the rate ``was`` to ``rate``: what it would have made of the rate ``now``."""
    if not isinstance(was, (int, float)) or not isinstance(now, (int, float)) or not was:
        return script
    return now if rate == was else rate * (now / was)


def _fields(optimizer: Optimizer, groups: list[dict[str, Any]]) -> set[str] | None:
    """The fields of the state that such an optimizer makes, found by a step on one number; None if that fails."""
    if not groups:
        return None
    accepted = inspect.signature(type(optimizer)).parameters
    options = {
        k: v for k, v in groups[0].items() if k in accepted and k not in IMPLEMENTATION and k != "params"
    }
    parameter = nn.Parameter(torch.ones(1))
    parameter.grad = torch.ones(1)
    try:
        with torch.enable_grad():
            small = type(optimizer)([parameter], **options)
            small.step()
    except Exception:  # an optimizer of the user, which needs other arguments
        return None
    return set(small.state[parameter])


def reset_schedule(
    schedule: Any,
    script: list[tuple[dict[str, Any], Any]],
    changes: list[SettingsChange],
    registered: Iterable[object],
) -> None:
    """Give a schedule the constants and base rates of ``script``, which has those of each part. Its rates then follow
    from them, unless another schedule in ``registered`` changes them, too."""
    for number, (part, (values, base_rates)) in enumerate(zip(parts(schedule), script, strict=False)):
        changed = {change.place[3] for change in changes if change.place[2] == number}
        vars(part).update({key: copy.copy(value) for key, value in values.items() if key in changed})
        if hasattr(part, "base_lrs"):
            part.base_lrs = list(base_rates)
    groups = schedule.optimizer.param_groups
    alone = sum(getattr(thing, "optimizer", None) is schedule.optimizer for thing in registered)
    rates = _closed_form(schedule) if alone == 1 else None
    for group, rate in zip(groups, rates or [], strict=False):
        if isinstance(group["lr"], torch.Tensor):
            group["lr"].fill_(rate)
        else:
            group["lr"] = rate
    schedule._last_lr = [group["lr"] for group in groups]


def _closed_form(schedule: Any) -> list[Any] | None:
    """The rates of the schedule at its epoch, independent of earlier rates; None if it has no such formula."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # "use get_last_lr", which gives the old rates
        if hasattr(schedule, "_get_closed_form_lr"):
            return list(schedule._get_closed_form_lr())
        if isinstance(schedule, (LambdaLR, OneCycleLR, CyclicLR)):
            return list(schedule.get_lr())
    return None


def convert_position(
    feed: DataFeed, saved: Mapping[str, Any], now: Mapping[str, Any], changed_data: list[str]
) -> str | None:
    """Count the position of ``feed`` in batches of the new size. Returns what to tell the user."""
    position = feed.position
    changed = [key for key in now if key in saved and saved[key] != now[key]] + changed_data
    if not changed or position.step == 0:
        return None
    if not saved["global_batch"] or not now["global_batch"]:  # a batch sampler's batches vary
        return (
            f"epoch {position.epoch + 1} goes on at step {position.step + 1} of the new batches: of this epoch, "
            "some samples are seen twice and some not at all"
        )
    seen = position.step * saved["global_batch"]
    if saved.get("length") is not None:
        seen = min(seen, saved["length"])
    steps = -(-seen // now["global_batch"])
    whole = steps * now["global_batch"]
    if feed.steps is not None:
        steps = min(steps, feed.steps)
        whole = min(whole, now["length"])
    position.step = steps
    if set(changed) - {"global_batch", "accumulate"}:
        return (
            f"epoch {position.epoch + 1} goes on after {seen} samples in the new order: of this epoch, some "
            "samples are seen twice and some not at all"
        )
    if whole > seen:
        return (
            f"epoch {position.epoch + 1} goes on at the next whole batch: {whole - seen} samples are skipped"
        )
    return None
