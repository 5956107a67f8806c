"""The settings of a script: recorded with each snapshot, compared at a resume, and chosen from if they differ.

A snapshot restores an optimizer's options and a schedule's numbers, and any model whose weights fit. So a learning rate
or an activation that was edited between two attempts would silently be the old one, or another one. Therefore a
difference is the error ``settings-changed``, unless the user chose: ``old`` uses the saved options and numbers, ``new``
uses the script's (``new_settings.py``).

A setting is noted when the first loop begins that has it: the script has built everything, and nothing is trained. An
``lr`` that a schedule has changed by then counts as the script gave it (``initial_lr``). If the script loads a state of
its own into an optimizer, the options before that count.
"""

from __future__ import annotations

import contextlib
import copy
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler, ReduceLROnPlateau

from rankup.core.whole_lines import say
from rankup.errors import RankupError
from rankup.runtime.checkpointing.model_form import ModuleKinds
from rankup.runtime.context import RunContext
from rankup.runtime.data.identity import identify
from rankup.strategies.inner_optimizers import IMPLEMENTATION

# {"optimizers": [{"class", "groups": […], …}], "schedules": {name: {"class", "parts": […]}}, "data": [{…}],
#  "run": {…}, "models": [{"shapes", "modules": {name: kind}}]}
Settings = dict[str, Any]
# Attributes of torch's schedules that move, or that are no numbers of the script's.
_NO_CONSTANTS = {
    *("optimizer", "base_lrs", "verbose"),
    *("last_epoch", "best", "num_bad_epochs", "cooldown_counter", "T_cur", "T_i"),
}
_SHOWN = 10  # changes, of which a model may have hundreds


@dataclass(frozen=True)
class SettingsChange:
    name: str
    old: Any
    new: Any
    restorable: bool  # whether a snapshot can restore the old value

    def __str__(self) -> str:
        old, new = _shown(self.old), _shown(self.new)
        if old == new:
            old, new = repr(self.old), repr(self.new)
        return f"{self.name}: {old} when saved, {new} now"


class ResumeSettings:
    """Of one run. ``in_force`` goes into its snapshots; ``check``, ``adjust`` and ``finish`` belong to a resume."""

    def __init__(self, run: RunContext, choice: str | None) -> None:
        self._run = run
        self._choice = choice
        self._saved: Settings = {}
        #: Whether the run goes on with settings of the script that differ from the saved ones.
        self.changed = False
        self._settings: Settings = {
            "optimizers": [],
            "schedules": {},
            "data": [],
            "run": {"precision": run.precision.name, "exact": run.strategy.exact},
        }
        self._asked: list[dict[str, Any]] = []  # beside each optimizer
        self._data: list[tuple[Any, Mapping[str, Any], dict[str, Any]]] = []
        self._groups: dict[int, list[dict[str, Any]]] = {}  # of each optimizer, as the script has built them
        self._schedules: dict[str, list[dict[str, Any]]] = {}  # what ``new`` sets in each part, likewise
        self._kinds: list[ModuleKinds] = []

    def note_prepared(self, optimizer: Optimizer | None, **asked: Any) -> None:
        """``asked``: the arguments of ``prepare`` besides a model and its optimizer."""
        if isinstance(optimizer, Optimizer):
            optimizer.register_load_state_dict_pre_hook(partial(self._note_before_load, len(self._asked)))
        self._asked.append(asked)

    def _note_before_load(self, index: int, optimizer: Optimizer, state: Mapping[str, Any]) -> None:
        if state.get("state"):  # without one it is what an LR finder puts back: the script's own options
            self._note_groups(index, optimizer)

    def _note_groups(self, index: int, optimizer: object) -> None:
        groups = optimizer.param_groups if isinstance(optimizer, Optimizer) else []
        self._groups.setdefault(index, [_options(group) for group in groups])

    def note_data(self, data: Any, loader: Mapping[str, Any], **asked: Any) -> None:
        """A data set that ``prepare`` got, and the arguments besides it."""
        self._data.append((data, loader, asked))

    def begin(self) -> None:
        """A loop begins: note what is there for the first time."""
        settings, run = self._settings, self._run
        for index in range(len(settings["optimizers"]), len(run.prepared)):
            model, optimizer = run.prepared[index]
            self._note_groups(index, optimizer)
            self._kinds.append(ModuleKinds(run.strategy, model))
            settings["optimizers"].append(
                {
                    "class": type(optimizer).__name__ if isinstance(optimizer, Optimizer) else None,
                    "groups": [_describe_group(group) for group in self._groups[index]],
                    **self._asked[index],
                }
            )
        for name, thing in run.registered.items():
            if isinstance(thing, (LRScheduler, ReduceLROnPlateau)) and name not in settings["schedules"]:
                from rankup.runtime.checkpointing.new_settings import schedule_parts

                parts = list(schedule_parts(thing))
                settings["schedules"][name] = {
                    "class": " of ".join(type(part).__name__ for part in parts),
                    "parts": [_plain(_constants(part)) for part in parts],
                }
                self._schedules[name] = [
                    copy.deepcopy({k: v for k, v in vars(part).items() if k == "base_lrs"} | _constants(part))
                    for part in parts
                ]

    @property
    def in_force(self) -> Settings:
        """The settings of this run, with the models as they are now. The first call reads a few samples."""
        self.begin()
        settings, run = self._settings, self._run
        for index in range(len(settings["data"]), len(run.feeds)):
            data, loader, asked = self._data[index]
            found = identify(data, run.seed, loader)
            settings["data"].append({**run.feeds[index].cut, **asked, "samples": str(found)})
            if found.unlike and asked.get("sample_rng") is not False and run.world.is_main:
                say(
                    f"warning: sample {found.unlike[0]} of {type(data).__name__} is another one each time it is "
                    "fetched, also with the same random numbers: neither a resume nor another number of processes or "
                    "loader workers gives the same training. Draw from generators that have a seed (an attribute made "
                    "in __init__, or the global ones), and keep no count of what was fetched"
                )
        return {**settings, "models": [kinds.now() for kinds in self._kinds]}

    # ---------------------------------------------------------- at a resume

    def check(self, metadata: Mapping[str, Any]) -> None:
        """RankupError ``settings-changed`` if the snapshot's settings differ, unless a choice serves."""
        self._saved = metadata["settings"]
        changes = differences(self._saved, self.in_force)
        fixed = [change.name for change in changes if not change.restorable]
        self.changed = bool(changes) and self._choice == "new"
        if not changes:
            return
        if self._choice is None or (self._choice == "old" and fixed):
            raise self._error(metadata["world_size"], changes, fixed)
        self._run.print(f"resumed with the {self._choice} settings. {_listed(changes, '; ')}")
        if self._choice == "old":  # the snapshot restores them; the next resume compares with these
            self._settings = {key: copy.deepcopy(self._saved[key]) for key in self._settings}

    def _error(self, saved_by: int, changes: list[SettingsChange], fixed: list[str]) -> RankupError:
        hint = "--resume-with new (or RANKUP_RESUME_WITH=new) goes on with the values of the script"
        if fixed:
            hint += f"; for the saved ones set them in the script, since a snapshot cannot: {_listed(fixed, ', ')}"
        else:
            hint += ", --resume-with old with the saved ones; or undo the change"
        ranks = self._run.world.world_size
        if saved_by != ranks and any(change.name.startswith("lr of ") for change in changes):
            hint += (
                f". The snapshot is of {saved_by} processes, this run has {ranks}: global_batch is the same on any "
                "number of them, so a learning rate must not be multiplied by world_size"
            )
        return RankupError(
            "settings-changed", f"the settings have changed: {_listed(changes, '; ')}", hint=hint
        )

    def adjust(
        self, tensors: Mapping[str, Any], registered: Mapping[str, Any]
    ) -> tuple[Mapping[str, Any], Mapping[str, Any]]:
        """The loaded state, and that of what is registered, with the script's values as far as these apply. The
        arguments are not changed."""
        from rankup.runtime.checkpointing.new_settings import Asked, new_optimizer_state, new_schedule_state

        tensors, registered = dict(tensors), dict(registered)
        for index, (model, optimizer) in enumerate(self._run.prepared):
            if isinstance(optimizer, Optimizer):
                names = {id(tensor): name for name, tensor in self._run.strategy.tensors(model).items()}
                was, now = (side["optimizers"][index] for side in (self._saved, self._settings))
                asked = Asked(self._groups[index], was, now)
                state, lost = new_optimizer_state(optimizer, names, tensors[str(index)]["optimizer"], asked)
                tensors[str(index)] = {**tensors[str(index)], "optimizer": state}
                if lost:
                    self._run.print(
                        f"{now['class']} begins without a state: the saved one ({', '.join(lost)}) is of other settings"
                    )
        for name, was in self._saved["schedules"].items() if self.changed else ():
            if was["class"] != self._settings["schedules"].get(name, was)["class"]:
                registered[name] = new_schedule_state(self._run.registered[name], registered[name])
        return tensors, registered

    def finish(self) -> None:
        """After everything is restored: schedules continue from the script's values, positions count its batches."""
        if not self.changed:
            return
        from rankup.runtime.checkpointing.new_settings import convert_position, reset_schedule

        self.changed = False
        was, now, run = self._saved, self._settings, self._run
        other = [
            optimizer
            for index, (_, optimizer) in enumerate(run.prepared)
            if was["optimizers"][index] != now["optimizers"][index]
        ]
        for name, script in self._schedules.items():
            schedule: Any = run.registered[name]
            if was["schedules"].get(name) != now["schedules"][name] or any(
                schedule.optimizer is optimizer for optimizer in other
            ):
                reset_schedule(schedule, script, run.registered.values())
        for feed, theirs, mine in zip(run.feeds, was["data"], now["data"], strict=True):
            if said := convert_position(feed, theirs, mine):
                run.print(said)


def differences(old: Settings, new: Settings) -> list[SettingsChange]:
    """Every setting that differs; first the optimizers', then schedules', data, run and models. A setting that only one
    of two versions of torch knows does not; a module that only one of the models has does."""
    was = {setting: value for setting, value, _ in _each(old)}
    changes = [
        SettingsChange(setting[0], was[setting], value, restorable)
        for setting, value, restorable in _each(new)
        if setting in was and was[setting] != value
    ]
    for index, (theirs, mine) in enumerate(zip(old["models"], new["models"], strict=False)):
        if theirs["shapes"] != mine["shapes"]:
            continue  # a model of other parameters, which the load names
        owner = _owner("model", index, new["models"])
        for name in theirs["modules"] | mine["modules"]:
            before, after = (side["modules"].get(name, "absent") for side in (theirs, mine))
            if before != after:
                changes.append(SettingsChange(_of(name, owner), before, after, restorable=False))
    return changes


def _each(settings: Settings) -> Iterator[tuple[tuple[str, int], Any, bool]]:
    """Each setting but the modules: its name, with the number of the part of a schedule that consists of others; its
    value; and whether a snapshot can restore it."""
    for index, optimizer in enumerate(settings["optimizers"]):
        owner, groups = _owner("optimizer", index, settings["optimizers"]), optimizer["groups"]
        yield (owner, 0), optimizer["class"], False
        yield (_of("parameter groups", owner), 0), len(groups), False
        for number, group in enumerate(groups):
            whose = f"{owner}, group {number + 1}" if len(groups) > 1 else owner
            yield from (((_of(name, whose), 0), value, True) for name, value in group.items())
        for name in sorted(optimizer.keys() - {"class", "groups"}):
            yield (_of(name, owner), 0), optimizer[name], False
    for owner, schedule in settings["schedules"].items():
        yield (owner, 0), schedule["class"], False
        for number, part in enumerate(schedule["parts"]):
            yield from (((_of(name, owner), number), value, True) for name, value in part.items())
    for index, data in enumerate(settings["data"]):
        owner = _owner("data set", index, settings["data"]) if len(settings["data"]) > 1 else "the data"
        yield from (((_of(name, owner), 0), value, False) for name, value in data.items())
    yield from (((_of(name, "the run"), 0), value, False) for name, value in settings["run"].items())


def _owner(what: str, index: int, all_of_them: list[Any]) -> str:
    return f"{what} {index + 1}" if len(all_of_them) > 1 else f"the {what}"


def _of(name: str, owner: str) -> str:
    return f"{name} of {owner}" if name else owner  # the outermost module has no name


def _listed(things: list[Any], between: str) -> str:
    more = [f"and {len(things) - _SHOWN} more"] if len(things) > _SHOWN else []
    return between.join([*map(str, things[:_SHOWN]), *more])


def _options(group: Mapping[str, Any]) -> dict[str, Any]:
    return {
        option: value.clone() if isinstance(value, torch.Tensor) else value
        for option, value in group.items()
        if option != "params"
    }


def _describe_group(group: Mapping[str, Any]) -> dict[str, Any]:
    described = _plain({option: value for option, value in group.items() if option not in IMPLEMENTATION})
    if "initial_lr" in described:  # a schedule has changed ``lr`` already when it was made
        described["lr"] = described.pop("initial_lr")
    return described


def _constants(schedule: Any) -> dict[str, Any]:
    """A schedule's public attributes that are plain: ``step_size``, ``gamma``, ``T_max``. Not the rates themselves."""
    named = {k: v for k, v in vars(schedule).items() if not k.startswith("_") or k == "_milestones"}
    plain = _plain(named)
    return {name: value for name, value in named.items() if name in plain and name not in _NO_CONSTANTS}


def _plain(values: Mapping[str, Any]) -> dict[str, Any]:
    """As a snapshot returns them: tuples as lists, a tensor of one number as a number; without what it cannot hold."""
    found = {}
    for name, value in values.items():
        with contextlib.suppress(TypeError, ValueError):
            # NaN as a string: it equals nothing.
            found[name] = json.loads(json.dumps(value, default=_number), parse_constant=str)
    return found


def _number(value: Any) -> Any:
    if isinstance(value, torch.Tensor) and value.numel() == 1 and not value.is_meta:
        return value.item()
    raise TypeError


def _shown(value: Any) -> str:
    if isinstance(value, list):
        return f"({', '.join(_shown(item) for item in value)})"
    return f"{value:.6g}" if isinstance(value, float) else str(value)
