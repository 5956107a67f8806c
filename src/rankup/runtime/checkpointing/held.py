"""Which of the mutable objects in a registered thing it has held since its loop began.

The script may know such an object by another name (``n = stats["n"]``), so a resume fills it in place. What the loop
has put there is made anew: to fill what lay there before could overwrite a constant of the script, or a view of its
data. An object that the thing holds twice is one object again.
"""

from __future__ import annotations

import weakref
from collections import deque
from collections.abc import Callable
from typing import Any

import torch

from rankup.runtime.checkpointing.packing import is_array, is_mutable
from rankup.runtime.unregistered.walk import key_of

Path = tuple[Any, ...]


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
                    at = at[key]
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


def _filled(there: Any, new: Any) -> Any:
    """``there`` with the content of ``new``; ``new`` if that does not fit."""
    if type(there) is not type(new):
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
