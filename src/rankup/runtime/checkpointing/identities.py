"""Which objects registered things have held since their loop began, and which of them are one.

The script may know such an object by another name (``n = stats["n"]``), so a resume fills it in place. What the loop
has put there is made anew: to fill what lay there before could overwrite a constant of the script, or a view of its
data. An object that two places hold, of one thing or of two, is one object again.
"""

from __future__ import annotations

import weakref
from collections import deque
from collections.abc import Callable, Container, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch

from rankup.runtime.checkpointing.packing import is_array, is_mutable
from rankup.runtime.unregistered.walk import attributes_of, key_of

# The name of a registered thing; then keys of containers, and of objects (whether it is an attribute, its name or key).
Path = tuple[Any, ...]
_Number = tuple[str, int]  # of an object in the state of a registered thing


class Held:
    """Of all that a run has registered: what it held when the loop began, each object by its first path. ``forgotten``:
    names of ``run.forget``, which are neither saved nor compared."""

    def __init__(self, forgotten: Container[str] = ()) -> None:
        self.forgotten = forgotten
        self._paths: dict[int, Path] = {}
        self._there: dict[Path, Callable[[], Any]] = {}
        self._met: dict[bool, _Met] | None = None
        self._at_end: list[Callable[[], None]] = []
        self.told: set[str] = set()  # paths of which it was said that they are left out

    def begin(self) -> None:
        """Before a loop notes what is there."""
        self._paths, self._there = {}, {}

    def note(self, value: Any, path: Path) -> None:
        """``value``, which is at ``path``, and everything in it."""
        if is_mutable(value):
            if id(value) in self._paths:
                return
            self._paths[id(value)] = path
            self._there[path] = _reference(value)
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

    def kept(self, name: str, thing: Any) -> set[int]:
        """Ids of what the registered ``thing`` still has where it was."""
        found = set()
        for path, there in self._there.items():
            if path[0] != name:
                continue
            at = thing
            try:
                for key in path[1:]:
                    attribute, name_or_key = key if isinstance(key, tuple) else (False, key)
                    at = dict(attributes_of(at))[name_or_key] if attribute else at[name_or_key]
            except (LookupError, TypeError):  # it is gone, or its key cannot be written
                continue
            if at is there():
                found.add(id(at))
        return found

    @contextmanager
    def together(self) -> Iterator[None]:
        """While the states of all things are taken, or set: then an object that two of them hold is one."""
        self._met, self._at_end = {False: _Met(), True: _Met()}, []
        try:
            yield
            for call in self._at_end:
                call()
        finally:
            self._met = None

    def at_end(self, call: Callable[[], None]) -> None:
        """Of setting all states."""
        self._at_end.append(call)

    def met(self, *, per_rank: bool) -> _Met:
        """A snapshot may have the two kinds from two ranks, whose numbers do not fit together."""
        return self._met[per_rank] if self._met is not None else _Met()


class _Met:
    """Objects in the order in which states are taken: ``numbers`` by id. And while states are set: ``made``, what is
    used for each number."""

    def __init__(self) -> None:
        self.numbers: dict[int, _Number] = {}
        self.made: dict[_Number, Any] = {}
        self._kept: list[Any] = []  # else another object could get the id of one that is gone

    def number(self, value: Any, new: _Number) -> _Number:
        self._kept.append(value)
        return self.numbers.setdefault(id(value), new)


class Identities:
    """Of the state of one thing: its mutable objects, counted in the order of ``packed``, with the paths of those that
    are held since the loop began, and the numbers of those that came before, in this thing or in another."""

    def __init__(self, name: str, held: Held, *, per_rank: bool = False) -> None:
        self._name = name
        self._held = held
        self._met = held.met(per_rank=per_rank)
        self._count = 0
        self._begin(0, {}, {})

    def _begin(self, count: int, paths: dict[int, Path], same: dict[int, _Number]) -> None:
        self._first, self._count, self._paths, self._same = count, count, paths, same

    # While a state is taken.

    def note(self, value: Any) -> None:
        number = (self._name, self._count)
        first = self._met.number(value, number)
        if first != number:
            self._same[self._count] = first
        if (path := self._held.path_of(value)) is not None:
            self._paths[self._count] = path
        self._count += 1

    def number_of(self, value: Any) -> _Number | None:
        """Of an object that another thing has."""
        return self._met.numbers.get(id(value))

    def part(self) -> dict[str, Any]:
        """What a state has of the objects that were noted since the part before."""
        found: dict[str, Any] = {"first": self._first, "count": self._count - self._first}
        found |= {"paths": [*self._paths.items()]} if self._paths else {}
        found |= {"same": [*self._same.items()]} if self._same else {}
        self._begin(self._count, {}, {})
        return {"objects": found} if found["count"] else {}

    # While it is set.

    def read(self, state: dict[str, Any]) -> None:
        """``state``: with a part, of which the objects are next."""
        part = state.get("objects", {})
        same = {number: (name, other) for number, (name, other) in part.get("same", ())}
        self._begin(part.get("first", 0), dict(part.get("paths", ())), same)
        self._last = self._first + part.get("count", 0) - 1

    def place(self, new: Any) -> Any:
        """What to use for ``new``, the next of the objects that a snapshot had."""
        number, self._count = self._count, self._count + 1
        first = self._number(number)
        if first not in self._met.made:
            there = self._held.at(self._paths.get(number))
            self._met.made[first] = new if there is None else _filled(there, new)
        return self._met.made[first]

    def outermost(self) -> Any:
        """What is used already for the object that holds all others of this part, which is its last; else None."""
        return self._met.made.get(self._number(self._last))

    def used_for(self, number: Sequence[Any]) -> Any:
        """What is used for an object of another thing, when that is set; else None."""
        name, count = number
        return self._met.made.get((name, count))

    def use(self, thing: Any) -> None:
        """``thing`` for the outermost object."""
        if self._last >= self._first:
            self._met.made[self._number(self._last)] = thing

    def _number(self, number: int) -> _Number:
        return self._same.get(number, (self._name, number))


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
