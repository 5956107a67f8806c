"""Any object of the script, registered: its attributes, as far as they are plain values or have a state.

Saved is what has changed since it was registered: what the script only sets (a number of epochs, a path) stays the
script's. An attribute that has held one object since the loop began is restored in place (``identities.py``). What
snapshots hold already (models, optimizers, what else is registered) is left alone, and of prepared modules only the
attributes that are not torch's are looked at.
"""

from __future__ import annotations

import copy
from collections import Counter, OrderedDict, deque
from collections.abc import Callable, Iterable, Iterator
from enum import Enum
from functools import partial
from typing import Any

import torch
from torch import nn
from torch.optim import Optimizer

from rankup.errors import RankupError
from rankup.runtime.checkpointing.adapters import Adapter, article, has_state, other
from rankup.runtime.checkpointing.identities import Held, Identities
from rankup.runtime.checkpointing.packing import content, packed, unpacked, unsaveable
from rankup.runtime.checkpointing.places import (
    Leaf,
    Passed,
    Path,
    changing_mark,
    ids_in,
    items_of,
    leaves_of,
    path_of_keys,
    put,
    remove,
    written,
)
from rankup.runtime.checkpointing.registered_containers import ContainerAdapter, adapter_of
from rankup.runtime.checkpointing.unsaved import Unsaved
from rankup.runtime.unregistered.marks import SIMPLE
from rankup.runtime.unregistered.walk import Walk, has_own_attributes

# What a snapshot can make anew. A generator, and what has a state_dict, must be there before the loop.
_MAKEABLE = {"plain", "tensor", "array", "items"}
_KINDS = {kind.__name__: kind for kind in (list, dict, set, deque, OrderedDict, Counter)}


class ObjectAdapter(Adapter):
    """``known``: gives the ids of what snapshots hold without the object; ``has_state``: whether its own ``state_dict``
    is in them too."""

    def __init__(
        self,
        name: str,
        thing: Any,
        device: torch.device,
        held: Held,
        known: Callable[[Any], set[int]],
        *,
        has_state: bool = False,
    ) -> None:
        super().__init__("object", name, thing, self._changed, self._restore)
        self._held = held
        self._device = device
        self._known, self._has_state = known, has_state
        self._passed = Passed({}, {}, {})  # what a process makes before its loop
        self.left_out: list[str] = []  # paths of values that the script has forgotten
        self._begun = {leaf.path: changing_mark(leaf.value) for leaf in self._leaves(self._passed)}
        self._there: set[Path] = set()  # likewise, of what no snapshot makes anew
        self._kinds: dict[Path, type] = {}  # of each value then
        # A class's own state_dict may see to the rest.
        own_state = has_state and not isinstance(thing, nn.Module)
        self._unsaved = None if own_state else Unsaved(name)

    def loop_begins(self) -> None:
        """What the script has made by now, it makes in each attempt."""
        self._kinds, self._passed = {}, Passed({}, {}, {})
        leaves = [*self._leaves(self._passed)]
        for leaf in leaves:
            self._held.note(leaf.value, (self._name, *leaf.path))
            self._kinds[leaf.path] = type(leaf.value)
            if not _makeable(self._adapted(leaf.value)):
                self._there.add(leaf.path)
        if self._unsaved is not None:
            self._unsaved.begin(self._walk(leaves))

    def _changed(self) -> list[Any]:
        passed = Passed({}, {}, {})
        leaves = [*self._leaves(passed)]
        identities = Identities(self._name, self._held, per_rank=self.per_rank)
        paths = {leaf.path for leaf in leaves}
        self._check_holders(passed, paths)
        if self._unsaved is not None:
            ends = {(id(leaf.holder), written(leaf.path[-1:])) for leaf in leaves}
            self._unsaved.check(self._walk(leaves), ends, self._held.forgotten)
        saved = [*self._changed_pointers(passed.pointers, identities), *self._gone(passed, paths)]
        for leaf in leaves:
            if self._begun.get(leaf.path) == changing_mark(leaf.value):
                continue
            if leaf.path[:-1] not in {**self._passed.holders, **self._passed.again}:
                raise self._of_training(leaf.holder, leaf.path[:-1])
            adapter = self._adapted(leaf.value)
            # A thing with a load_state_dict of its own may make it there.
            made_anew = leaf.path in self._there or has_state(self.thing)
            kind = type(leaf.value)
            # A snapshot knows of no other class of containers how to make it.
            filled = isinstance(leaf.value, (list, dict, set, deque)) and kind not in _KINDS.values()
            makeable = _makeable(adapter) and (not filled or self._kinds.get(leaf.path) is kind)
            if not (makeable or made_anew):
                raise self._of_training(leaf.value, leaf.path)
            state = self._taken(leaf.value, adapter, identities)
            if (path := self._held.path_of(leaf.value)) is not None:
                state = {**state, "place": path}
            if kind in _KINDS.values() and kind not in (list, dict):
                state = {**state, "kind": kind.__name__}
            if isinstance(leaf.value, deque):
                state = {**state, "maxlen": leaf.value.maxlen}
            saved.append([[list(key) for key in leaf.path], state])
        return saved

    def _restore(self, places: list[Any]) -> None:
        live = {leaf.path: leaf for leaf in self._leaves()}
        identities = Identities(self._name, self._held, per_rank=self.per_rank)
        for keys, saved in places:
            path = path_of_keys(keys)
            leaf = live.get(path)
            before = leaf.value if leaf is not None else None
            there = self._held.at(saved.get("place")) if _MAKEABLE & saved.keys() else before
            adapter = self._adapted(there) if there is not None else None
            holder = self._holder(path)
            if "gone" in saved:
                remove(holder, path[-1])
                continue
            if "pointer" in saved:
                self._held.at_end(partial(self._point, path, saved, identities))
                continue
            identities.read(saved)
            used = None if "plain" in saved else identities.outermost()
            if used is not None and holder is not None:  # another place has it too
                if used is not before:
                    put(holder, path[-1], used)
            elif adapter is not None and adapter.kind in saved and _fits(there, saved):
                _load(adapter, saved, identities)
                identities.use(there)
                if there is not before and holder is not None:  # it was at another place when the loop began
                    put(holder, path[-1], there)
            elif holder is not None and _MAKEABLE & saved.keys():
                put(holder, path[-1], self._made(saved, before, identities))
            else:
                at = written(path)
                raise other(self._name, f"{at} of it, which this process has not made before its loop")

    def _changed_pointers(self, now: dict[Path, Any], identities: Identities) -> Iterator[list[Any]]:
        """Of places that have got a thing that snapshots hold already: which. RankupError if no other place tells."""
        for path, value in now.items():
            if self._passed.pointers.get(path) is value:
                continue
            if (place := self._held.path_of(value)) is not None:
                yield [[list(key) for key in path], {"pointer": True, "place": place}]
            elif (number := identities.number_of(value)) is not None:
                yield [[list(key) for key in path], {"pointer": True, "same": number}]
            elif path in self._passed.pointers or path in self._kinds:
                raise self._moved(path, "is another of the run's things than when the loop began")

    def _gone(self, passed: Passed, leaves: set[Path]) -> Iterator[list[Any]]:
        """Values that were there when the loop began, and that the training has deleted. RankupError in a list, whose
        values would move up."""
        for path in self._kinds:
            holder = passed.holders.get(path[:-1])
            if path in leaves or holder is None or path[-1] in items_of(holder):
                continue
            if isinstance(holder, (list, deque)):
                raise self._moved(path, "is gone, which was there when the loop began")
            yield [[list(key) for key in path], {"gone": True}]

    def _point(self, path: Path, saved: dict[str, Any], identities: Identities) -> None:
        holder = self._holder(path)
        used = self._held.at(saved["place"]) if "place" in saved else identities.used_for(saved["same"])
        if holder is None or used is None:
            raise other(
                self._name, f"{written(path)} of it is a part of another thing, which was not restored"
            )
        put(holder, path[-1], used)

    def _check_holders(self, passed: Passed, leaves: set[Path]) -> None:
        """RankupError if what the loop began with is gone, or elsewhere: a snapshot has values by their paths."""
        was_there = {**self._passed.holders, **self._passed.again}
        now = {**passed.holders, **passed.again}
        begun = {id(each) for each in was_there.values()}
        for path, holder in now.items():
            had_other = was_there[path] is not holder if path in was_there else path in self._kinds
            if had_other and id(holder) in begun:
                raise self._moved(path, "is another of its objects than when the loop began")
        for path in was_there:
            # What is reached again is looked into by its other path alone.
            if path and path not in now and path not in leaves and path[:-1] in passed.holders:
                raise self._moved(path, "is gone, which was there when the loop began")

    def _moved(self, path: Path, what: str) -> RankupError:
        return RankupError(
            "unsaveable-state",
            f"{self._name}{written(path)} {what}: a snapshot has values by their places, and cannot restore that",
            hint="leave the objects in their places, and keep numbers or names: current = 2, alive = [True, False]",
            exit_code=1,
        )

    def kept(self) -> set[int]:
        return self._held.kept(self._name, self.thing)

    def _of_training(self, held: Any, path: Path) -> RankupError:
        place = f"{self._name}{written(path)}"
        within = unsaveable(content(held), place) if isinstance(held, (list, dict, set, deque)) else None
        return RankupError(
            "unsaveable-state",
            f"{within or f'{place} is {article(held)}'}, which the training has made and a snapshot cannot make anew",
            hint="keep tuples, lists and dicts of numbers, tensors and arrays; or give "
            f"{type(self.thing).__name__} the methods state_dict and load_state_dict",
            exit_code=1,
        )

    def parts(self, state: dict[str, Any]) -> dict[str, Any]:
        """A state by what it holds: ``.best``, ``.seen['a']``."""
        return {written(path_of_keys(keys)): saved for keys, saved in state["object"]}

    def has(self, path: str) -> bool:
        """Whether there is a value at ``path``, as in ``.best``."""
        inherited = path[1:] in vars(type(self.thing))  # an attribute of its class, until it sets its own
        return inherited or path in {written(leaf.path) for leaf in self._leaves()}

    def put(self, path: str, value: Any) -> None:
        """Set a plain value that a snapshot has noted."""
        places = [(leaf.holder, leaf.path[-1]) for leaf in self._leaves() if written(leaf.path) == path]
        for holder, key in places or [(self.thing, (True, path[1:]))]:
            put(holder, key, value)

    # ------------------------------------------------------------------ inside

    def _holder(self, path: Path) -> Any:
        """What holds the place at ``path``; None if this process has not made it."""
        at = self.thing
        for attribute, key in path[:-1]:
            try:
                at = items_of(at)[attribute, key]
            except (LookupError, TypeError):
                return None
        return at

    def _taken(self, value: Any, adapter: Adapter | None, identities: Identities) -> dict[str, Any]:
        """The state of a value, as a snapshot can hold it."""
        if isinstance(adapter, ContainerAdapter):
            return adapter.state_dict(identities)
        if adapter is not None:
            state = adapter.state_dict()
            if adapter.kind in ("tensor", "array"):
                identities.note(value)
        elif isinstance(value, tuple):
            state = {"plain": packed(tuple(value), identities.note)}
        elif isinstance(value, Enum):
            state = {"plain": value.name}
        else:
            state = {"plain": value if type(value) in SIMPLE else value.item()}
        return {**state, **identities.part()}

    def _made(self, saved: dict[str, Any], before: Any, identities: Identities) -> Any:
        """A new value of what was saved, of the kind of the one ``before``."""
        if "plain" in saved:
            return _made_plain(unpacked(saved["plain"], identities.place), before)
        if "array" in saved:
            new: Any = saved["array"].numpy().copy()
        elif "tensor" in saved:
            at = before.device if isinstance(before, torch.Tensor) else self._device
            new = saved["tensor"].clone().to(at)
            new = new.requires_grad_() if getattr(before, "requires_grad", False) else new
        else:
            new = _empty(saved, before)
            ContainerAdapter(self._name, new, self._device, self._held).load_state_dict(saved, identities)
        identities.use(new)
        return new

    def _leaves(self, passed: Passed | None = None) -> Iterator[Leaf]:
        """``passed``: gets what is not forgotten of what the search passes."""
        passed = passed or Passed({}, {}, {})
        known = self._known(self.thing) - {id(self.thing)}
        covered = ids_in(self.thing.state_dict()) if self._has_state else set()
        leaves = leaves_of(self.thing, (), known | covered, {id(self.thing)}, passed)
        self.left_out = []
        for leaf in leaves:
            if self._is_forgotten(leaf.path):
                self.left_out.append(f"{self._name}{written(leaf.path)}")
            else:
                yield leaf
        for found in passed:
            for path in [path for path in found if self._is_forgotten(path)]:
                del found[path]
        for path in [path for path, value in passed.pointers.items() if id(value) in covered]:
            del passed.pointers[path]

    def _walk(self, leaves: Iterable[Leaf]) -> Walk:
        """Over what is in none of the leaves."""
        saved = {
            id(leaf.value)
            for leaf in leaves
            if not isinstance(leaf.value, nn.Module) and not has_own_attributes(leaf.value)
        }
        return Walk(self._known(self.thing) - {id(self.thing)} | saved).look({self._name: self.thing})

    def _is_forgotten(self, path: Path) -> bool:
        return any(key in self._held.forgotten for _, key in path)

    def _adapted(self, value: Any) -> Adapter | None:
        if isinstance(value, (nn.Module, Optimizer)):
            return Adapter("state_dict", self._name, value, value.state_dict, value.load_state_dict)
        return adapter_of(self._name, value, self._device, self._held)


def _empty(saved: dict[str, Any], before: Any) -> Any:
    """A container of the kind that was saved; of another class like the one ``before``."""
    kind = _KINDS.get(saved.get("kind", ""), dict if isinstance(saved["items"], dict) else list)
    own = isinstance(before, (list, dict, set, deque)) and type(before) not in _KINDS.values()
    if own and "kind" not in saved and isinstance(before, dict) is (kind is dict):
        return copy.copy(before)
    return deque(maxlen=saved["maxlen"]) if kind is deque else kind()


def _load(adapter: Adapter, saved: dict[str, Any], identities: Identities) -> None:
    if isinstance(adapter, ContainerAdapter):
        adapter.load_state_dict(saved, identities)
    else:
        adapter.load_state_dict(saved)


def _makeable(adapter: Adapter | None) -> bool:
    return adapter is None or adapter.kind in _MAKEABLE


def _fits(value: Any, saved: dict[str, Any]) -> bool:
    """Whether a value can be restored in place."""
    if isinstance(value, torch.Tensor):
        return bool(value.shape == saved["tensor"].shape and value.dtype == saved["tensor"].dtype)
    return not hasattr(value, "dtype") or (value.shape == tuple(saved["array"].shape))


def _made_plain(plain: Any, before: Any) -> Any:
    """Of the kind of the value ``before``."""
    kind: Any = type(before)
    if isinstance(before, Enum):
        return kind[plain]
    if isinstance(before, tuple) and hasattr(kind, "_make"):
        return kind._make(plain)
    return kind(plain) if kind.__module__ == "numpy" and not hasattr(before, "__len__") else plain
