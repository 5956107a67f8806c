"""Registered lists, dicts, sets and deques; and which objects a registered thing has held since its loop began.

The script may know such an object by another name (``n = stats["n"]``), so a resume fills it in place. What the loop
has put there is made anew: to fill what lay there before could overwrite a constant of the script, or a view of its
data. An object that the thing holds twice is one object again.
"""

from __future__ import annotations

import copy
import itertools
import weakref
from collections import deque
from collections.abc import Callable
from typing import Any

import torch

from rankup.errors import RankupError
from rankup.runtime.checkpointing.adapters import Adapter, other
from rankup.runtime.checkpointing.packing import (
    as_torch,
    content,
    is_array,
    is_mutable,
    packed,
    unpacked,
    unsaveable,
)
from rankup.runtime.pytree import map_tensors, tensors_in
from rankup.runtime.seed import generator_access
from rankup.runtime.unregistered.walk import attributes_of, key_of

Path = tuple[Any, ...]  # keys of containers; of objects (whether it is an attribute, its name or key)


class Held:
    """Of one thing: what it held when its loop began, each object by its first path."""

    def __init__(self) -> None:
        self._paths: dict[int, Path] = {}
        self._there: dict[Path, Callable[[], Any]] = {}

    def note(self, value: Any, path: Path) -> None:
        """``value``, which is at ``path``, and everything in it."""
        if is_mutable(value):
            if id(value) in self._paths:
                return
            self._paths[id(value)] = path
            self._there[path] = _reference(value)
        self.note_items(value, path)

    def note_items(self, value: Any, path: Path = ()) -> None:
        if isinstance(value, (list, tuple, dict, deque)):
            items = value.items() if isinstance(value, dict) else enumerate(value)
            for place, (key, item) in enumerate(items):
                self.note(item, (*path, key_of(key, place)))

    def path_of(self, value: Any) -> Path | None:
        """Where it was when the loop began."""
        path = self._paths.get(id(value))
        return path if path is not None and self._there[path]() is value else None

    def at(self, path: Path | None) -> Any:
        """What was there when the loop began, if it still exists."""
        there = None if path is None else self._there.get(path)
        return None if there is None else there()

    def kept(self, thing: Any) -> set[int]:
        """Ids of what ``thing`` still has where it was."""
        found = set()
        for path, there in self._there.items():
            at = thing
            try:
                for key in path:
                    attribute, name = key if isinstance(key, tuple) else (False, key)
                    at = dict(attributes_of(at))[name] if attribute else at[name]
            except (LookupError, TypeError):  # it is gone, or its key cannot be written
                continue
            if at is there():
                found.add(id(at))
        return found


class Identities:
    """Of one state: the numbers, in the order of ``packed``, of objects that are held since the loop began, with their
    paths, and of those that came before, with their numbers then."""

    def __init__(self, held: Held, state: dict[str, Any] | None = None) -> None:
        self._held = held
        self._paths: dict[int, Path] = dict((state or {}).get("held", ()))
        self._same: dict[int, int] = dict((state or {}).get("same", ()))
        self._first: dict[int, int] = {}
        self._count = 0
        self._made: list[Any] = []

    def note(self, value: Any) -> None:
        first = self._first.setdefault(id(value), self._count)
        if first != self._count:
            self._same[self._count] = first
        elif (path := self._held.path_of(value)) is not None:
            self._paths[self._count] = path
        self._count += 1

    def state(self) -> dict[str, Any]:
        found = {"held": [*self._paths.items()], "same": [*self._same.items()]}
        return {key: numbers for key, numbers in found.items() if numbers}

    def place(self, new: Any) -> Any:
        """What to use for ``new``, the next of the objects that a snapshot had."""
        number = len(self._made)
        if number in self._same:
            new = self._made[self._same[number]]
        elif number in self._paths:
            new = _filled(self._held.at(self._paths[number]), new)
        self._made.append(new)
        return new


def adapter_of(name: str, value: Any, device: torch.device, held: Held | None = None) -> Adapter | None:
    """Of a tensor, an array, a generator of random numbers, or a container of plain values and tensors; else None.
    ``held``: of what holds a container."""

    def check(saved: Any) -> None:
        if saved.shape != value.shape or saved.dtype != value.dtype:
            now = f"{value.dtype} {tuple(value.shape)}"
            raise other(name, f"{saved.dtype} {tuple(saved.shape)}; this run has {now}")

    def fill_tensor(saved: torch.Tensor) -> None:
        check(saved)
        with torch.no_grad():
            value.copy_(saved)

    def fill_array(saved: torch.Tensor) -> None:
        check(loaded := saved.numpy())
        value[...] = loaded

    if isinstance(value, torch.Tensor):
        plain = value.layout == torch.strided and not (
            value.is_quantized or value.is_meta or hasattr(value, "to_local")
        )
        return Adapter("tensor", name, value, value.detach, fill_tensor) if plain else None
    if is_array(value):
        plain = value.flags.writeable and as_torch(value[:0] if value.ndim else value) is not None
        return Adapter("array", name, value, lambda: as_torch(value), fill_array) if plain else None
    if (access := generator_access(value)) is not None:
        get, set_ = access
        return Adapter("generator", name, value, lambda: packed(get()), lambda saved: set_(unpacked(saved)))
    if isinstance(value, (list, dict, set, deque)) and unsaveable(content(value), name) is None:
        return ContainerAdapter(name, value, device, held)
    return None


class ContainerAdapter(Adapter):
    """A list, dict, set or deque. Tensors in it that were on an accelerator are restored to this rank's device.
    ``held``: of the object that holds it; None if it is registered itself."""

    def __init__(self, name: str, thing: Any, device: torch.device, held: Held | None = None) -> None:
        super().__init__("items", name, thing, self._items, self._fill)
        self._device = device
        self._held = held or Held()

    def loop_begins(self) -> None:
        self._held = Held()
        self._held.note_items(self.thing)

    def kept(self) -> set[int]:
        return self._held.kept(self.thing)

    def state_dict(self) -> dict[str, Any]:
        identities = Identities(self._held)
        items = packed(self._items(), identities.note)
        places = enumerate(tensors_in(items))
        on_device = [at for at, one in places if one.device.type != "cpu"]
        return {self.kind: items, "on_device": on_device, **identities.state()}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        elsewhere, count = set(state_dict.get("on_device", ())), itertools.count()

        def placed(tensor: torch.Tensor) -> torch.Tensor:
            return tensor.to(self._device) if next(count) in elsewhere else tensor

        self._identities = Identities(self._held, state_dict)
        super().load_state_dict(map_tensors(placed, copy.deepcopy(state_dict)))

    def _items(self) -> Any:
        items = content(self.thing)
        if (place := unsaveable(items, self._name)) is not None:
            raise RankupError(
                "unsaveable-state",
                f"{place}, which a snapshot cannot contain",
                hint="numbers, strings, tensors, arrays, and lists, dicts, tuples and sets of them",
                exit_code=1,
            )
        return items

    def _fill(self, saved: Any) -> None:
        thing = self.thing
        if not isinstance(saved, dict if isinstance(thing, dict) else list):
            raise other(self._name, f"not a {type(thing).__name__}")
        loaded = unpacked(saved, self._identities.place)
        thing.clear()
        if isinstance(thing, (dict, set)):
            thing.update(loaded)
        else:
            thing.extend(loaded)


def _filled(there: Any, new: Any) -> Any:
    """``there`` with the content of ``new``; ``new`` if that does not fit."""
    # A snapshot has no Parameters.
    tensors = isinstance(there, torch.Tensor) and isinstance(new, torch.Tensor)
    if not tensors and type(there) is not type(new):
        return new
    if isinstance(there, (dict, set)):
        there.clear()
        there.update(new)
    elif isinstance(there, list):
        there[:] = new
    elif there.shape != new.shape or there.dtype != new.dtype:
        return new
    else:
        try:
            if isinstance(there, torch.Tensor):
                with torch.no_grad():
                    there.copy_(new)
            else:
                there[...] = new
        except (RuntimeError, ValueError):  # an expanded tensor, an array that is read-only
            return new
    return there


def _reference(value: Any) -> Callable[[], Any]:
    """Keeps no tensor alive that the loop has put away."""
    return weakref.ref(value) if isinstance(value, torch.Tensor) or is_array(value) else lambda: value
