"""Plain values that models, optimizers and data sets keep in attributes: a count of steps, a temperature, a list of
losses, the stage of a curriculum.

No ``state_dict`` has them. The first loop notes them when it begins, and each state those that have changed since. They
are restored in a process that begins with the same ones; else the script was edited, or chooses them anew.

An object of which other attributes change as well is left alone: a length whose tensors are cached beside it would
promise what is not there. The user is warned of these if their values change with the steps.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Container, Iterable, Iterator, Mapping
from typing import Any

import torch
from torch import nn
from torch.optim import Optimizer

from rankup.runtime.checkpointing.attributes import (
    others,
    plain,
    put,
    read,
    same,
    small,
    small_arrays,
    within,
    written,
)
from rankup.runtime.checkpointing.data_orders import DataOrders
from rankup.runtime.checkpointing.data_rows import DataRows
from rankup.runtime.context import RunContext
from rankup.strategies.inner_optimizers import inner_optimizers

_DATA = "data "
_OPTIMIZER = "optimizer "
_DEPTH = 4  # of data sets in each other; one may hold itself

# Of each object, by attribute: [the value now, ``written``], after the mark when the loop began if there was one.
Changed = dict[str, dict[str, list[Any]]]


class PlainValues:
    """Of one run."""

    def __init__(self, run: RunContext) -> None:
        self._run = run
        self._begun: dict[str, dict[str, Any]] = {}
        self._others: dict[str, dict[str, Any]] = {}
        self._read: dict[str, dict[str, Any]] = {}
        self._copied: dict[int, dict[str, Any]] = {}
        self._kept: list[Any] = []
        self._after_first_step: dict[str, dict[str, Any]] | None = None
        self._arrays: dict[str, dict[str, str]] = {}
        self._containers: dict[str, dict[str, Any]] = {}
        self._rows = DataRows(run, self._data_sets)
        self._orders = DataOrders(run, self._data_sets, self._rows)

    def begin(self) -> None:
        """A stage of the training begins, or is about to be resumed."""
        self._begun = self._now()
        self._others = self._others_now()
        self._rows.begin()
        self._orders.note_lists()
        # Else another object could get the id of one that is gone.
        self._kept = [value for _, thing in self.things() for value in vars(thing).values() if small(value)]

    def state(self) -> Changed:
        """What has changed since the loop began, of objects of which nothing else has."""
        found: Changed = {}
        now = self._others_now()
        for place, thing in self.things():
            changed = self._changed(place, thing)
            if changed and now[place] == self._others.get(place):
                found[place] = changed
        return found

    def load(self, saved: Mapping[str, Mapping[str, list[Any]]]) -> None:
        """Restore what ``state`` gave, where this process has begun as that one had."""
        for place, thing in self.things():
            begun = self._begun.get(place, {})
            for name, (*before, value) in saved.get(place, {}).items():
                if same(before, [begun[name]] if name in begun else []):
                    put(thing, name, read(value))

    def unseen(self) -> list[str]:
        """What to say of attributes of data sets that have changed since persistent workers copied them. To be called
        when an epoch begins."""
        said: list[str] = []
        for index, feed in enumerate(self._run.feeds):
            data = getattr(feed, "dataset", None)
            if not getattr(feed, "keeps_copies", False) or not hasattr(data, "__dict__"):
                continue
            now = plain(data)
            before = self._copied.setdefault(index, now)
            for name, value in now.items():
                if not same(before.get(name, value), value):
                    said.append(
                        f"{name} of {type(data).__name__} (a data set) has changed, and the loader's workers do not "
                        "see it: they keep a copy from their start (persistent_workers=True), and a resume gives them "
                        "another one; leave persistent_workers out if a worker reads it"
                    )
        return said

    def note_lists(self) -> None:
        """An epoch's last batch is trained."""
        self._orders.note_lists()

    def check_orders(self) -> None:
        """See ``DataOrders.check``."""
        if self._run.control is None:
            return
        lists: dict[str, list[Any]] = {}
        for place, thing in self.things():
            changed = self._changed(place, thing) if place.startswith(_DATA) else None
            for name, (*_, value) in (changed or {}).items():
                if isinstance(value, list) and value[0] == "list":
                    lists[f"list {name} of {type(thing).__name__}"] = value[2]
        self._orders.check(lists)

    def first_step_done(self) -> None:
        """What a model computes once, in its first forward, does not change with the steps."""
        if self._after_first_step is None:
            self._after_first_step = self._now()
            self._arrays = {
                place: {
                    name: text
                    for name, text in small_arrays(thing).items()
                    if name in self._others.get(place, {})  # not made in the first forward
                }
                for place, thing in self.things()
            }
            self._containers = {
                place: found for place, found in self._others_now().items() if place.startswith(_OPTIMIZER)
            }

    def epoch_trained(self) -> None:
        """The epoch's last batch is trained. What a data set has not changed until now is no cache of what it read."""
        self._read = {
            place: {name: now for name, now in found.items() if self._others.get(place, {}).get(name) == now}
            for place, found in self._others_now().items()
            if place.startswith(_DATA)
        }

    def lost(self, registered: Container[int] = ()) -> list[str]:
        """What to say of each value that changes with the steps and is not restored, once per class and attribute.
        ``registered``: ids of what other parts of the state have."""
        said: dict[str, str] = {}
        before = self._after_first_step or {}
        others_now = self._others_now()
        for place, thing in self.things():
            if others_now[place] != self._others.get(place) or self._changed(place, thing) is None:
                for name, value in plain(thing).items():
                    if not same(before.get(place, {}).get(name, value), value):
                        where = f"{name} of {type(thing).__name__}"
                        said[where] = (
                            f"{where} changes in training, as other attributes of it do that no snapshot holds: after "
                            "a resume it starts again, unless the script sets it in each step or before each epoch; "
                            + _instead(place, thing, name)
                        )
            if place.startswith(_DATA):  # which may keep what it has read
                begun = self._others.get(place, {})
                for name, current in others_now[place].items():
                    now = current[0]
                    before_code = self._read.get(place, {}).get(name, current)
                    if now == before_code[0] and current != before_code and now not in registered:
                        where = f"{name} of {type(thing).__name__}"
                        said[where] = (
                            f"{where} (a data set) is changed in place after the inner loop, and is in no snapshot: "
                            "after a resume it begins again; "
                            f"run.register({name}=…) before the loop, with this {type(vars(thing)[name]).__name__}"
                        )
                    if name in begun and begun[name][0] != now:
                        where = f"{name} of {type(thing).__name__}"
                        said[where] = (
                            f"{where} (a data set) was replaced in training, and is in no snapshot; if it was drawn, "
                            "each process may have drawn its own: make it from epoch.index, before the inner loop "
                            "(torch.Generator().manual_seed(epoch.index)), so that every process and a resume make the "
                            "same"
                        )
                continue
            for name, current in others_now[place].items():
                before_code = self._containers.get(place, {}).get(name, current)
                kept = current[0] == before_code[0] and isinstance(vars(thing)[name], (list, dict, deque))
                if kept and current != before_code and current[0] not in registered:
                    where = f"{name} of {type(thing).__name__} (an optimizer)"
                    said[where] = (
                        f"{where} is filled or changed in each step, and is in no snapshot: after a resume it begins "
                        f"again; what belongs to a parameter p goes into self.state[p]"
                    )
            for name, text in small_arrays(thing).items():
                if self._arrays.get(place, {}).get(name, text) != text:
                    where = f"{name} of {type(thing).__name__} ({type(vars(thing)[name]).__name__})"
                    said[where] = (
                        f"{where} changes in training and is in no snapshot: after a resume it begins again; "
                        + _instead(place, thing, name)
                    )
        for where in self._rows.changed():
            said.setdefault(where, _of_rows(where))
        return list(said.values())

    def rows_trained(self) -> None:
        """The epoch's last batch is trained."""
        self._rows.epoch_trained()

    def rows_lost(self, said: Iterable[str]) -> list[str]:
        """Like ``lost``, of rows that the code between two epochs has changed, and of which nothing was ``said``. To be
        called when an epoch begins."""
        found = self._rows.changed_between_epochs()
        return [_of_rows(where) for where in found if not any(each.startswith(where) for each in said)]

    def _now(self) -> dict[str, dict[str, Any]]:
        return {place: plain(thing) for place, thing in self.things()}

    def _changed(self, place: str, thing: object) -> dict[str, list[Any]] | None:
        """None if one of them cannot be in a snapshot."""
        begun = self._begun.get(place, {})
        names = [
            name for name, now in plain(thing).items() if name not in begun or not same(begun[name], now)
        ]
        try:
            return {
                name: [*([begun[name]] if name in begun else []), written(vars(thing)[name])]
                for name in names
            }
        except ValueError:
            return None

    def _others_now(self) -> dict[str, dict[str, Any]]:
        saved = self.saved_tensors()
        return {place: others(thing, saved) for place, thing in self.things()}

    def saved_tensors(self) -> set[int]:
        """Ids of the parameters and buffers of prepared and registered modules, and of registered tensors."""
        registered = self._run.registered.values()
        modules = [*self._run.models, *(thing for thing in registered if isinstance(thing, nn.Module))]
        found = {id(each) for module in modules for each in (*module.parameters(), *module.buffers())}
        return found | {id(thing) for thing in registered if isinstance(thing, torch.Tensor)}

    def owned(self) -> set[int]:
        """Ids of what snapshots have: models, optimizers, data, what is registered, and what these hold."""
        things = {id(thing) for _, thing in self.things()}
        return things | within(self._run.registered.values()) | self.saved_tensors()

    def _data_sets(self) -> Iterator[tuple[str, Any]]:
        for index, feed in enumerate(self._run.feeds):
            place, data = f"{_DATA}{index}", getattr(feed, "dataset", None)
            for _ in range(_DEPTH):
                if hasattr(data, "__dict__"):
                    yield place, data
                    place, data = f"{place}/dataset", vars(data).get("dataset")  # of a Subset

    def things(self) -> Iterator[tuple[str, Any]]:
        """The objects whose attributes these are, by place."""
        yield from self._data_sets()
        modules = {f"model {index}": model for index, model in enumerate(self._run.models)}
        modules |= {
            name: thing for name, thing in self._run.registered.items() if isinstance(thing, nn.Module)
        }
        for where, model in modules.items():
            for name, module in model.named_modules():
                yield f"{where}/{name}", module
        for index, optimizer in enumerate(self._run.optimizers):
            yield from _with_inner(f"{_OPTIMIZER}{index}", optimizer)


def _of_rows(where: str) -> str:
    return (
        f"{where} (a data set) changes in training, and is in no snapshot: after a resume it begins again with its "
        "first numbers; run.register it before the loop and change it in place, or make it from epoch.index on all "
        "ranks alike"
    )


def _with_inner(place: str, optimizer: object) -> Iterator[tuple[str, Any]]:
    if isinstance(optimizer, Optimizer):
        yield place, optimizer
        for name, inner in inner_optimizers(optimizer).items():
            yield from _with_inner(f"{place}/{name}", inner)


def _instead(place: str, thing: object, name: str) -> str:
    if isinstance(thing, Optimizer):
        return f'a parameter group holds it: self.param_groups[0]["{name}"]'
    if place.startswith(_DATA):
        return "set it by epoch.index before the inner loop"
    return f'a buffer is saved: self.register_buffer("{name}", torch.tensor(…))'
