"""A resume whose script asks for other settings than the snapshot was taken with: an error, or what the user chose.

``old`` goes on with the saved options of optimizers and constants of schedules. ``new`` takes the script's: a learning
rate is changed for the rest of its schedule, an optimizer of another kind keeps the state that has the same fields, and
a position in the middle of an epoch is counted in batches of the new size.
"""

from __future__ import annotations

import copy
import inspect
import warnings
from collections.abc import Mapping
from typing import Any

import torch
from torch import nn
from torch.optim import Optimizer
from torch.optim.lr_scheduler import CyclicLR, LambdaLR, OneCycleLR

from rankup.errors import RankupError
from rankup.runtime.checkpointing.settings import (
    IMPLEMENTATION,
    Settings,
    SettingsChange,
    constants,
    describe_optimizer,
    describe_run,
    describe_schedule,
    differences,
    is_schedule,
    parts,
)
from rankup.runtime.context import RunContext
from rankup.runtime.data.identity import identify


class ResumeSettings:
    """Of one run. ``in_force`` goes into its snapshots; ``check``, ``adjust`` and ``finish`` belong to a resume."""

    def __init__(self, run: RunContext, choice: str | None) -> None:
        self._run = run
        self._choice = choice
        self._saved: Settings | None = None
        self._settings: Settings = {"run": describe_run(run), "optimizers": [], "schedules": {}, "data": []}
        self._asked: list[dict[str, Any]] = []  # beside each optimizer
        self._data: list[tuple[Any, Mapping[str, Any], dict[str, Any]]] = []
        self._groups: list[list[dict[str, Any]]] = []  # of each optimizer, as the script has built them
        self._schedules: dict[str, list[tuple[dict[str, Any], Any]]] = {}  # constants and base_lrs, likewise
        self._changed: list[SettingsChange] = []

    def note_prepared(self, **asked: Any) -> None:
        """What ``prepare`` got beside a model and its optimizer."""
        self._asked.append(asked)

    def note_data(self, data: Any, loader: Mapping[str, Any], **asked: Any) -> None:
        """A data set that ``prepare`` got, and what beside it."""
        self._data.append((data, loader, asked))

    def note_begin(self) -> None:
        """A loop begins: options and constants are as the script has made them, whatever a schedule does later."""
        settings, run = self._settings, self._run
        for index in range(len(settings["optimizers"]), len(run.prepared)):
            _, optimizer = run.prepared[index]
            settings["optimizers"].append(describe_optimizer(optimizer, self._asked[index]))
            groups = optimizer.param_groups if isinstance(optimizer, Optimizer) else []
            self._groups.append([_options(group) for group in groups])
        for name, thing in run.registered.items():
            if is_schedule(thing) and name not in settings["schedules"]:
                settings["schedules"][name] = describe_schedule(thing)
                self._schedules[name] = [
                    (constants(part), list(getattr(part, "base_lrs", []))) for part in parts(thing)
                ]

    @property
    def in_force(self) -> Settings:
        """The settings of this run."""
        self.note_begin()
        settings, run = self._settings, self._run
        for index in range(len(settings["data"]), len(run.feeds)):
            data, loader, asked = self._data[index]
            samples = str(identify(data, run.seed, loader))
            settings["data"].append({**run.feeds[index].cut, **asked, "samples": samples})
        return settings

    # ---------------------------------------------------------- at a resume

    def check(self, metadata: Mapping[str, Any]) -> bool:
        """An error where the snapshot's settings are others, and no choice was made. False where it has none: older
        versions recorded nothing."""
        self._changed = []
        self._saved = metadata.get("settings")
        if self._saved is None:
            return False
        changed = differences(self._saved, self.in_force)
        if not changed:
            return True
        fixed = [change for change in changed if not change.restorable]
        if self._choice is None or (self._choice == "old" and fixed):
            raise self._error(metadata, changed, fixed)
        self._run.print(f"resumed with the {self._choice} settings. " + "; ".join(map(str, changed)))
        if self._choice == "new":
            self._changed = changed
        else:  # the snapshot restores them; the next resume compares with these
            self._settings = copy.deepcopy(self._saved)
        return True

    def _error(
        self, metadata: Mapping[str, Any], changed: list[SettingsChange], fixed: list[SettingsChange]
    ) -> RankupError:
        hint = (
            "--resume-with new (or RANKUP_RESUME_WITH=new) goes on with the values of the script, --resume-with old "
            "with the saved ones; or undo the change"
        )
        if fixed:
            names = ", ".join(change.name for change in fixed)
            hint = (
                "--resume-with new (or RANKUP_RESUME_WITH=new) goes on with the values of the script; for the saved "
                f"ones set them in the script, since a snapshot cannot: {names}"
            )
        ranks = metadata["world_size"], self._run.world.world_size
        if ranks[0] != ranks[1] and any(str(change.place[-1]).endswith("lr") for change in changed):
            hint += (
                f". The snapshot is of {ranks[0]} processes, this run has {ranks[1]}: global_batch is the same on any "
                "number of them, so a learning rate must not be multiplied by world_size"
            )
        return RankupError(
            "settings-changed", "the settings have changed: " + "; ".join(map(str, changed)), hint=hint
        )

    def _optimizer_changes(self, index: int) -> list[SettingsChange]:
        return [change for change in self._changed if change.place[:2] == ("optimizers", index)]

    def widen(self, tensors: dict[str, Any], outline: Mapping[str, Any]) -> None:
        """Make room for the options that were saved of an optimizer of another kind."""
        for index in range(len(self._run.prepared)):
            if not any(change.place[2] in ("class", "groups") for change in self._optimizer_changes(index)):
                continue
            saved = outline.get(str(index), {}).get("optimizer", {}).get("groups", {})
            groups = tensors[str(index)].get("optimizer", {}).get("groups", {})
            for name in groups.keys() & saved.keys():
                groups[name] = {
                    option: torch.empty(value.shape, dtype=value.dtype)
                    if isinstance(value, torch.Tensor)
                    else value
                    for option, value in saved[name].items()
                }

    def adjust(self, tensors: Mapping[str, Any]) -> Mapping[str, Any]:
        """The loaded state, with the script's values where those hold. ``tensors`` stay as they are."""
        if self._saved is None:
            return tensors
        adjusted = dict(tensors)
        for index, (model, optimizer) in enumerate(self._run.prepared):
            if not isinstance(optimizer, Optimizer):
                continue
            loaded = tensors[str(index)]["optimizer"]
            names = {id(tensor): name for name, tensor in self._run.strategy.tensors(model).items()}
            groups = {}
            for number, group in enumerate(optimizer.param_groups):
                for parameter in group["params"]:
                    name = names[id(parameter)]
                    groups[name] = self._group(index, number, loaded["groups"].get(name, {}))
            state = loaded["state"] if self._carries(index, optimizer, loaded["state"]) else {}
            adjusted[str(index)] = {
                **tensors[str(index)],
                "optimizer": {**loaded, "state": state, "groups": {**loaded["groups"], **groups}},
            }
        return adjusted

    def adjust_registered(self, registered: Mapping[str, Any]) -> Mapping[str, Any]:
        """Likewise: a schedule of another class takes over how often it was stepped, and nothing else."""
        adjusted = dict(registered)
        for change in self._changed:
            if change.place[0] == "schedules" and change.place[2:] == ("class",):
                name = change.place[1]
                state = self._run.registered[name].state_dict()
                counts = {
                    key: registered[name][key]
                    for key in ("last_epoch", "_step_count")
                    if key in registered[name]
                }
                adjusted[name] = {**state, **counts}
        return adjusted

    def _group(self, index: int, number: int, loaded: dict[str, Any]) -> dict[str, Any]:
        """The options of one parameter."""
        assert self._saved is not None
        if number >= len(self._groups[index]):
            return loaded  # the training added this group later
        script = self._groups[index][number]
        free = {option: script[option] for option in IMPLEMENTATION if option in script}
        changes = self._optimizer_changes(index)
        if not changes:
            return {**loaded, **free}
        was = self._saved["optimizers"][index]["groups"]
        if changes[0].place[2:] == ("groups",) or number >= len(was):
            return dict(script)
        other = changes[0].place[2] == "class"
        made = dict(script) if other else {**loaded, **free}
        now = self._settings["optimizers"][index]["groups"][number]
        for option, value in now.items():
            if not other and value != was[number].get(option, value):
                made[option] = script[option]
        asked = [side.get("initial_lr", side.get("lr")) for side in (was[number], now)]
        if "lr" in loaded and None not in asked:
            made["lr"] = _scaled(loaded["lr"], asked[0], asked[1], script["lr"])
            if asked[0] == asked[1]:
                made["lr"] = loaded["lr"]
        return made

    def _carries(self, index: int, optimizer: Optimizer, state: Mapping[str, Mapping[str, Any]]) -> bool:
        """Whether the saved state is one that this optimizer, as it is now, would have made."""
        if not self._optimizer_changes(index) or not state:
            return True
        saved = {field for fields in state.values() for field in fields}
        makes = _fields(optimizer, self._groups[index])
        same_class = all(change.place[2:] != ("class",) for change in self._optimizer_changes(index))
        if saved == makes or (makes is None and same_class):
            return True
        self._run.print(
            f"{type(optimizer).__name__} begins without a state: the saved one ({', '.join(sorted(saved))}) is of "
            "other settings"
        )
        return False

    def finish(self, metadata: Mapping[str, Any]) -> None:
        """After everything is restored: schedules go on from the script's values, positions count its batches."""
        if not self._changed:
            return
        for name, script in self._schedules.items():
            thing: Any = self._run.registered[name]
            own = [change for change in self._changed if change.place[:2] == ("schedules", name)]
            index = next((i for i, (_, o) in enumerate(self._run.prepared) if o is thing.optimizer), None)
            rates = index is not None and bool(self._optimizer_changes(index))
            if own or rates:
                self._reset_schedule(thing, script, own)
        for feed, position, change in zip(
            self._run.feeds, metadata["positions"], self._settings["data"], strict=True
        ):
            self._convert(feed, position, change)
        self._changed = []

    def _reset_schedule(
        self, schedule: Any, script: list[tuple[dict[str, Any], Any]], own: list[SettingsChange]
    ) -> None:
        for number, (part, (values, base_rates)) in enumerate(zip(parts(schedule), script, strict=False)):
            changed = {change.place[3] for change in own if change.place[2] == number}
            vars(part).update({key: copy.copy(value) for key, value in values.items() if key in changed})
            if hasattr(part, "base_lrs"):
                part.base_lrs = list(base_rates)
        groups = schedule.optimizer.param_groups
        alone = sum(
            getattr(thing, "optimizer", None) is schedule.optimizer for thing in self._run.registered.values()
        )
        rates = _closed_form(schedule) if alone == 1 else None
        for group, rate in zip(groups, rates or [], strict=False):
            if isinstance(group["lr"], torch.Tensor):
                group["lr"].fill_(rate)
            else:
                group["lr"] = rate
        schedule._last_lr = [group["lr"] for group in groups]

    def _convert(self, feed: Any, saved: Mapping[str, Any], now: Mapping[str, Any]) -> None:
        position = feed.position
        changed = [key for key in now if key in saved and saved[key] != now[key]] + [
            change.place[-1] for change in self._changed if change.place[0] == "data"
        ]
        if not changed or position.step == 0:
            return
        if not saved["global_batch"] or not now["global_batch"]:  # a batch sampler's batches vary
            self._run.print(
                f"epoch {position.epoch + 1} goes on at step {position.step + 1} of the new batches: of this epoch, "
                "some samples are seen twice and some not at all"
            )
            return
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
            self._run.print(
                f"epoch {position.epoch + 1} goes on after {seen} samples in the new order: of this epoch, some "
                "samples are seen twice and some not at all"
            )
        elif whole > seen:
            self._run.print(
                f"epoch {position.epoch + 1} goes on at the next whole batch: {whole - seen} samples are skipped"
            )


def _options(group: Mapping[str, Any]) -> dict[str, Any]:
    return {
        option: value.clone() if isinstance(value, torch.Tensor) else value
        for option, value in group.items()
        if option != "params"
    }


def _scaled(rate: Any, was: Any, now: Any, script: Any) -> Any:
    """``rate``, which a schedule has moved from ``was``, where it would be from ``now``."""
    if not isinstance(was, (int, float)) or not isinstance(now, (int, float)) or not was:
        return script
    return now if rate == was else rate * (now / was)


def _closed_form(schedule: Any) -> list[Any] | None:
    """The rates that the schedule has at its epoch, whatever was before; None where it knows no such form."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # "use get_last_lr": not the one of before
        if hasattr(schedule, "_get_closed_form_lr"):
            return list(schedule._get_closed_form_lr())
        if isinstance(schedule, (LambdaLR, OneCycleLR, CyclicLR)):
            return list(schedule.get_lr())
    return None


def _fields(optimizer: Optimizer, groups: list[dict[str, Any]]) -> set[str] | None:
    """The fields of the state that an optimizer like this one makes, found out on one number; None if that fails."""
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
    except Exception:  # somebody's own optimizer: it needs more than we know
        return None
    return set(small.state[parameter])
