"""A resume with other settings in the script than in the snapshot: an error, or what the user chose.

``old`` uses the saved options of optimizers and constants of schedules. ``new`` uses the script's: a learning rate is
changed for the rest of its schedule, an optimizer of another kind keeps its state if that has the same fields, and a
position in the middle of an epoch is counted in batches of the new size.
"""

from __future__ import annotations

import copy
import sys
from collections.abc import Mapping
from functools import partial
from typing import Any

import torch
from torch.optim import Optimizer

from rankup.errors import RankupError
from rankup.runtime.checkpointing.apply_settings import OptimizerChange, convert_position, reset_schedule
from rankup.runtime.checkpointing.settings import (
    Settings,
    SettingsChange,
    constants,
    describe_layers,
    describe_optimizer,
    describe_run,
    describe_schedule,
    differences,
    is_schedule,
    other_layers,
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
        self._settings: Settings = {
            "run": describe_run(run),
            "optimizers": [],
            "schedules": {},
            "data": [],
            "layers": [],
        }
        self._said_layers = False
        self._asked: list[dict[str, Any]] = []  # beside each optimizer
        self._data: list[tuple[Any, Mapping[str, Any], dict[str, Any]]] = []
        self._groups: list[list[dict[str, Any]]] = []  # of each optimizer, as the script has built them
        self._schedules: dict[str, list[tuple[dict[str, Any], Any]]] = {}  # constants and base_lrs, likewise
        self._changed: list[SettingsChange] = []
        # Of each optimizer into which the script has loaded a state before its loop: the options that came with it.
        self._loaded: dict[int, list[dict[str, Any]]] = {}

    def note_prepared(self, optimizer: Optimizer | None, **asked: Any) -> None:
        """``asked``: the arguments of ``prepare`` besides a model and its optimizer."""
        if isinstance(optimizer, Optimizer):
            optimizer.register_load_state_dict_post_hook(partial(self._note_loaded, len(self._asked)))
        self._asked.append(asked)

    def _note_loaded(self, index: int, optimizer: Optimizer) -> None:
        if index < len(self._settings["optimizers"]):  # its loop has begun
            return
        # Without a state it is what an LR finder puts back: the script's own options.
        self._loaded[index] = describe_optimizer(optimizer, {})["groups"] if optimizer.state else []

    def note_data(self, data: Any, loader: Mapping[str, Any], **asked: Any) -> None:
        """A data set that ``prepare`` got, and the arguments besides it."""
        self._data.append((data, loader, asked))

    def note_begin(self) -> None:
        """A loop begins: note options and constants as the script has set them, before a schedule changes them."""
        settings, run = self._settings, self._run
        for index in range(len(settings["optimizers"]), len(run.prepared)):
            model, optimizer = run.prepared[index]
            settings["layers"].append(describe_layers(model))
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

    @property
    def changed(self) -> bool:
        """Whether the run goes on with settings of the script that differ from the saved ones."""
        return bool(self._changed)

    def check(self, metadata: Mapping[str, Any]) -> bool:
        """An error if the snapshot's settings differ and no choice was made. False if it has none: older versions
        recorded nothing."""
        self._changed = []
        self._saved = metadata.get("settings")
        if self._saved is None:
            return False
        changed = self._without_loaded(differences(self._saved, self.in_force))
        self._warn_of_layers(self._saved)
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

    def _without_loaded(self, changed: list[SettingsChange]) -> list[SettingsChange]:
        """A script that goes on from a checkpoint of its own has in its optimizer what a schedule had made of the
        learning rate by then. It is not a setting of the script: the snapshot's value is used."""
        rest = [change for change in changed if not self._is_loaded(change)]
        for change in changed:
            if change not in rest:
                _, index, _, number, option = change.place
                self._settings["optimizers"][index]["groups"][number][option] = change.old
        if len(rest) < len(changed):
            self._run.print("the script has loaded a state into its optimizer: the snapshot replaces it")
        return rest

    def _is_loaded(self, change: SettingsChange) -> bool:
        if change.place[0] != "optimizers" or len(change.place) != 5:
            return False
        _, index, _, number, option = change.place
        groups = self._loaded.get(index, [])
        return number < len(groups) and option in groups[number] and groups[number][option] == change.new

    def _warn_of_layers(self, saved: Settings) -> None:
        """No error: the weights fit, and another activation may be meant."""
        layers = other_layers(saved.get("layers", []), self._settings["layers"])
        if not layers or self._said_layers or not self._run.world.is_main:
            return
        self._said_layers = True
        more = f" and {len(layers) - 3} more" if len(layers) > 3 else ""
        print(
            "warning: the model is not the one of the snapshot, and its weights go on in another one: "
            f"{'; '.join(layers[:3])}{more}",
            file=sys.stderr,
            flush=True,
        )

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
        """Make room in ``tensors`` for the saved options of an optimizer of another kind."""
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
        """The loaded state with the script's values, as far as these apply. ``tensors`` are not changed."""
        if self._saved is None:
            return tensors
        adjusted = dict(tensors)
        for index, (model, optimizer) in enumerate(self._run.prepared):
            if not isinstance(optimizer, Optimizer):
                continue
            loaded = tensors[str(index)]["optimizer"]
            names = {id(tensor): name for name, tensor in self._run.strategy.tensors(model).items()}
            change = OptimizerChange(
                self._optimizer_changes(index),
                self._groups[index],
                self._saved["optimizers"][index]["groups"],
                self._settings["optimizers"][index]["groups"],
            )
            groups = {}
            for number, group in enumerate(optimizer.param_groups):
                for parameter in group["params"]:
                    name = names[id(parameter)]
                    groups[name] = change.options(number, loaded["groups"].get(name, {}))
            fields = {field for fields in loaded["state"].values() for field in fields}
            state = loaded["state"]
            if not change.fits(optimizer, fields):
                state = {}
                self._run.print(
                    f"{type(optimizer).__name__} begins without a state: the saved one ({', '.join(sorted(fields))}) "
                    "is of other settings"
                )
            adjusted[str(index)] = {
                **tensors[str(index)],
                "optimizer": {**loaded, "state": state, "groups": {**loaded["groups"], **groups}},
            }
        return adjusted

    def adjust_registered(self, registered: Mapping[str, Any]) -> Mapping[str, Any]:
        """Likewise: a schedule of another class takes over only how often it was stepped."""
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

    def finish(self, metadata: Mapping[str, Any]) -> None:
        """After everything is restored: schedules continue from the script's values, positions count its batches."""
        if not self._changed:
            return
        for name, script in self._schedules.items():
            thing: Any = self._run.registered[name]
            own = [change for change in self._changed if change.place[:2] == ("schedules", name)]
            index = next((i for i, (_, o) in enumerate(self._run.prepared) if o is thing.optimizer), None)
            rates = index is not None and bool(self._optimizer_changes(index))
            if own or rates:
                reset_schedule(thing, script, own, self._run.registered.values())
        for feed, position, now in zip(
            self._run.feeds, metadata["positions"], self._settings["data"], strict=True
        ):
            changed_data = [change.place[-1] for change in self._changed if change.place[0] == "data"]
            if message := convert_position(feed, position, now, changed_data):
                self._run.print(message)
        self._changed = []


def _options(group: Mapping[str, Any]) -> dict[str, Any]:
    return {
        option: value.clone() if isinstance(value, torch.Tensor) else value
        for option, value in group.items()
        if option != "params"
    }
