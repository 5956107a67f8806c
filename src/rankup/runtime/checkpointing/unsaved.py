"""What a registered thing holds that no snapshot can contain: a place in an iterator, a function, a Decimal.

It must not change in training, or a resume would lose it in silence.
"""

from __future__ import annotations

import ast
import re
import weakref
from collections import deque
from collections.abc import Callable, Container, Iterator
from typing import Any

from torch import nn
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler

from rankup.errors import RankupError
from rankup.runtime.unregistered.marks import Mark, differ
from rankup.runtime.unregistered.walk import Walk, attributes_of

# What holds other things, whose paths have marks of their own.
_CONTAINERS = (list, tuple, dict, set, deque)
_HOLDERS = (nn.Module, Optimizer, LRScheduler, *_CONTAINERS)
_END = re.compile(r"(\.[^.\[\]]*|\[[^\[\]]*\])$")  # of a path


class Unsaved:
    """Of one registered thing."""

    def __init__(self, name: str) -> None:
        self._name = name
        # By path: the mark when the loop began; or when it was first seen, and then the object that must stay.
        self._seen: dict[str, tuple[Mark, Callable[[], Any]]] = {}

    def begin(self, walk: Walk) -> None:
        """``walk``: over the object, when a loop begins. What it holds then counts, whatever takes its place."""
        begun = {path: mark for path, mark in _marks(walk).items() if mark.content != [None]}
        self._seen = {path: (mark, lambda: None) for path, mark in begun.items()}

    def check(self, walk: Walk, saved: Container[tuple[int, str]], forgotten: Container[str]) -> None:
        """RankupError ``unsaveable-state`` for what has changed and is not in ``saved``: ids of objects, with the end
        of the path that leads to a value in it (``.best``)."""
        for path, mark in _marks(walk).items():
            holders = [*_holders(walk, path)]
            stays = _place(*holders[0]) if holders else None
            was, stayed = self._seen.setdefault(path, (mark, _reference(stays)))
            if stayed() is not None and stayed() is not stays:  # a step has made it anew
                self._seen[path] = mark, _reference(stays)
                continue
            if not differ(was, mark):
                continue
            names = [name for name in re.split(r"\W+", path.removeprefix(self._name)) if name]
            if any(name in forgotten for name in names):
                continue
            # A state is that of one class, and of a container only its items are saved.
            of_container = (
                holders and isinstance(holders[0][0], _CONTAINERS) and holders[0][1].startswith(".")
            )
            apart = of_container or isinstance(walk.objects.get(path), _HOLDERS)
            if apart or not any((id(each), end) in saved for each, end in holders):
                raise self._error(path, names[0] if names else self._name, was, mark)

    def _error(self, path: str, name: str, was: Mark, now: Mark) -> RankupError:
        cure = f"keep numbers in {self._name} from which it is made anew; or give its class state_dict, load_state_dict"
        if now.named:
            cure = "choose it at the begin of each epoch by a number that is registered"
        return RankupError(
            "unsaveable-state",
            f"{path} changes in training ({was.text} when the loop began, {now.text} now), and no snapshot can contain "
            "it",
            hint=f"{cure}; run.forget({name!r}) if the script sees to it itself, or if it may begin anew",
            exit_code=1,
        )


def _marks(walk: Walk) -> dict[str, Mark]:
    """What holds other things counts by its class: they have marks of their own."""
    classes = {
        path: walk.names[path]
        for path, each in walk.objects.items()
        if path in walk.names and isinstance(each, _HOLDERS)
    }
    return {**walk.inherited, **walk.by_path(), **classes}


def _holders(walk: Walk, path: str) -> Iterator[tuple[Any, str]]:
    """The objects on the way to ``path``, the innermost first, each with the end that leads on from it."""
    while (end := _END.search(path)) is not None:
        path = path[: end.start()]
        if path in walk.objects:
            yield walk.objects[path], end[0]


def _place(holder: Any, end: str) -> Any:
    """An iterator; of anything else what holds it."""
    try:
        value = holder[ast.literal_eval(end[1:-1])] if end[0] == "[" else dict(attributes_of(holder))[end[1:]]
    except (LookupError, TypeError, ValueError, SyntaxError):
        return holder
    return value if hasattr(type(value), "__next__") else holder


def _reference(thing: Any) -> Callable[[], Any]:
    try:
        return weakref.ref(thing)
    except TypeError:
        return lambda: thing
