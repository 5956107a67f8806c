"""``resume_with="new"``: how the script's settings replace those of a snapshot.

A learning rate is changed for the rest of its schedule, an optimizer of another class keeps its state if that has the
same fields, and a position in the middle of an epoch is counted in batches of the new size.
"""

from __future__ import annotations

import copy
import inspect
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch import nn
from torch.optim import Optimizer
from torch.optim.lr_scheduler import CyclicLR, LambdaLR, OneCycleLR

from rankup.runtime.data.batches import DataFeed
from rankup.strategies.inner_optimizers import IMPLEMENTATION

Options = Mapping[str, Any]


class Asked(NamedTuple):
    """What the script asks of an optimizer: its groups as it has built them, and the settings as they were recorded by
    the snapshot and as they would be recorded now."""

    groups: Sequence[Options]
    was: Mapping[str, Any]
    now: Mapping[str, Any]


def new_optimizer_state(
    optimizer: Optimizer, names: Mapping[int, str], loaded: Mapping[str, Any], asked: Asked
) -> tuple[dict[str, Any], list[str]]:
    """(the ``loaded`` state with what the script asks for, the names of fields that had to be left out). ``names``: by
    the id of a parameter."""
    was, now = asked.was["groups"], asked.now["groups"]
    groups, state = dict(loaded["groups"]), loaded["state"]
    for number, group in enumerate(optimizer.param_groups):
        for name in (names[id(parameter)] for parameter in group["params"]):
            place = loaded["places"].get(name, len(was))
            if number < len(now) and place < len(was):  # else the training added this group
                groups[name] = _new_options(
                    groups.get(name, {}), asked.groups[number], was[place], now[number]
                )
    lost: list[str] = []
    if asked.was != asked.now:
        saved = {field for fields in state.values() for field in fields}
        makes = _fields(optimizer, asked.groups[0]) if saved else saved
        if saved != makes and not (makes is None and asked.was["class"] == asked.now["class"]):
            state, lost = {}, sorted(saved)
    return {**loaded, "state": state, "groups": groups}, lost


def _new_options(loaded: Options, script: Options, was: Options, now: Options) -> dict[str, Any]:
    """The options of a parameter: the ``loaded`` ones, but the script's if ``was`` and ``now`` differ in them."""
    made = dict(script)
    for option, value in loaded.items():
        asked = "lr" if option == "initial_lr" else option
        if option not in IMPLEMENTATION and was.get(asked) == now.get(asked):
            made[option] = value
    if "lr" in loaded and was.get("lr") != now.get("lr"):
        made["lr"] = _scaled(loaded["lr"], was.get("lr"), now.get("lr"), script.get("lr"))
    return made


def _scaled(rate: Any, was: Any, now: Any, script: Any) -> Any:
    """A schedule has changed the rate ``was`` to ``rate``: what it would have made of the rate ``now``."""
    if not isinstance(was, (int, float)) or not isinstance(now, (int, float)) or not was:
        return script
    made = now if float(rate) == was else float(rate) * (now / was)
    return torch.full_like(rate, made) if isinstance(rate, torch.Tensor) else made


def _fields(optimizer: Optimizer, options: Options) -> set[str] | None:
    """The fields of the state that such an optimizer makes, found by a step on one number; None if that fails."""
    known = inspect.signature(type(optimizer)).parameters.keys() - IMPLEMENTATION
    number = nn.Parameter(torch.ones(1))
    number.grad = torch.ones(1)
    try:
        with torch.enable_grad():
            other = type(optimizer)([number], **{k: v for k, v in options.items() if k in known})
            other.step()
    except Exception:  # an optimizer of the user, which needs other arguments
        return None
    return set(other.state[number])


def schedule_parts(schedule: Any) -> Iterator[Any]:
    """The schedule, and those of which it consists."""
    yield schedule
    for inner in getattr(schedule, "_schedulers", []):
        yield from schedule_parts(inner)


def new_schedule_state(schedule: Any, saved: Mapping[str, Any]) -> dict[str, Any]:
    """The state of a schedule of another class than the saved one: it takes over how often that was stepped."""
    return {
        **schedule.state_dict(),
        **{key: saved[key] for key in ("last_epoch", "_step_count") if key in saved},
    }


def reset_schedule(schedule: Any, script: Sequence[Mapping[str, Any]], registered: Iterable[object]) -> None:
    """Give each part of a schedule the numbers and base rates of the ``script``. Its rates then follow from them,
    unless another schedule in ``registered`` changes them, too."""
    for part, values in zip(schedule_parts(schedule), script, strict=False):
        vars(part).update(copy.deepcopy(dict(values)))
    groups = schedule.optimizer.param_groups
    alone = sum(getattr(thing, "optimizer", None) is schedule.optimizer for thing in registered) == 1
    for group, rate in zip(groups, _closed_form(schedule) if alone else (), strict=False):
        if isinstance(group["lr"], torch.Tensor):
            group["lr"].fill_(rate)
        else:
            group["lr"] = rate
    schedule._last_lr = [group["lr"] for group in groups]


def _closed_form(schedule: Any) -> list[Any]:
    """The rates of the schedule at its epoch, independent of earlier rates; none if it has no such formula."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # "use get_last_lr", which gives the old rates
        if hasattr(schedule, "_get_closed_form_lr"):
            return list(schedule._get_closed_form_lr())
        return list(schedule.get_lr()) if isinstance(schedule, (LambdaLR, OneCycleLR, CyclicLR)) else []


def convert_position(feed: DataFeed, was: Options, now: Options) -> str | None:
    """Count the position of ``feed`` in batches of the new size. Returns what to tell the user."""
    position, skipped = feed.position, 0
    changed = {key for key in now if was.get(key, now[key]) != now[key]}
    if not changed or position.step == 0:
        return None
    if was["global_batch"] and now["global_batch"]:  # else batches vary, and the step is all that is known
        seen = position.step * was["global_batch"]
        if was["length"] is not None:
            seen = min(seen, was["length"])
        step = -(-seen // now["global_batch"])
        whole = step * now["global_batch"]
        if feed.steps is not None:
            step, whole = min(step, feed.steps), min(whole, now["length"])
        position.go_to(position.epoch, step)
        skipped = whole - seen
    where = f"epoch {position.epoch + 1} goes on after {position.step} steps of the new batches"
    if changed - {"global_batch", "accumulate"}:
        return f"{where}: their order is another one, and some samples of this epoch are seen twice, some not at all"
    return f"{where}: {skipped} samples are skipped" if skipped > 0 else None
