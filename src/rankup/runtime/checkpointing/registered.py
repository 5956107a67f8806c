"""What ``run.register`` accepts, and how each kind of thing is saved and restored.

| registered | in a snapshot | at a resume |
|---|---|---|
| an object with ``state_dict`` | its ``state_dict()`` | ``load_state_dict`` |
| list, dict, set, deque; tensor, NumPy array; generator of random numbers | its content | the same object gets it |
| number, bool, string, None, tuple of these | its value in ``Values`` | the same attribute has it |
| any other object of the script; attributes of a prepared model | attributes that have changed | the same attributes |

All have the protocol of the first row in the end (``Stateful``): the other kinds get an adapter.
"""

from __future__ import annotations

import random
import sys
from collections import deque
from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import torch

from rankup.errors import RankupError
from rankup.runtime.checkpointing.adapters import (
    Adapter,
    Stateful,
    article,
    has_state,
    refused,
)
from rankup.runtime.unregistered.marks import SIMPLE
from rankup.runtime.unregistered.walk import cannot_be_set, is_watched, of_library

if TYPE_CHECKING:
    from rankup.runtime.checkpointing.identities import Held


class Values:
    """What ``run.register`` returns: the simple values of the run, as attributes that can be read and set."""

    def __init__(self) -> None:
        self.__dict__["_values"] = {}
        self.__dict__["_objects"] = {}  # what else is registered: names and what they are

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):  # what copy, pickle and a debugger ask for
            raise AttributeError(name)
        self._check(name)
        return self._values[name]

    def __setattr__(self, name: str, value: Any) -> None:
        self._check(name)
        simple, new = simplify(value)
        if not simple:
            raise RankupError(
                "not-simple",
                f"the registered value {name} got {article(value)}: only numbers, strings, None and tuples of them",
                hint=f"register a list, a dict or a tensor itself, run.register({name}=…), and change it in place",
                exit_code=1,
            )
        self._values[name] = new

    def __dir__(self) -> list[str]:
        return sorted(self._values)

    def __iter__(self) -> Iterator[tuple[str, Any]]:
        """Names and values, also while another thread sets one."""
        return iter(list(self._values.items()))

    def __repr__(self) -> str:
        return f"Values({', '.join(f'{name}={value!r}' for name, value in self._values.items())})"

    def _check(self, name: str) -> None:
        if name in self._objects:
            raise RankupError(
                "not-registered",
                f"{name} is registered as {self._objects[name]}, and only numbers, strings, None and tuples are "
                f"attributes of what run.register returns",
                hint=f"use the object that was registered, and change it in place: {name}.update(…) for a dict, "
                f"{name}[:] = … for a list, {name}.copy_(…) for a tensor",
                exit_code=1,
            )
        if name not in self._values:
            from rankup.core.nearest import nearest

            near = nearest(name, self._values)
            known = ", ".join(sorted(self._values)) or "nothing yet"
            raise RankupError(
                "not-registered",
                f"no value {name!r} was registered; registered: {known}",
                hint=f"do you mean {near}?"
                if near
                else f"values = run.register({name}=0.0), before the loop",
                exit_code=1,
            )

    def _add(self, name: str, value: Any) -> None:
        self._values[name] = value

    def _add_object(self, name: str, thing: Any) -> None:
        self._objects[name] = article(thing)


def simplify(value: Any) -> tuple[bool, Any]:
    """(whether it is a simple value, that value). NumPy's numbers and tensors of one number become Python's."""
    numpy = sys.modules.get("numpy")
    if (isinstance(value, torch.Tensor) and value.dim() == 0) or (
        numpy is not None and isinstance(value, numpy.generic)
    ):
        value = value.item()
    if type(value) is tuple:
        parts = [simplify(part) for part in value]
        return all(simple for simple, _ in parts), tuple(part for _, part in parts)
    return type(value) in SIMPLE, value


class Declared(NamedTuple):
    """What snapshots hold of a run, for ``as_stateful``. ``held``: gives what its registered things hold. ``known``:
    gives the ids of all that was declared before a thing."""

    values: Values
    device: torch.device
    prepared: tuple[Any, ...]
    held: Callable[[], Held]
    known: Callable[[Any], set[int]]


def as_stateful(name: str, thing: Any, declared: Declared) -> dict[str, Stateful]:
    """``thing``, or adapters with a ``state_dict`` for it, by name. An object with a ``state_dict`` has a second entry
    for what that does not cover. Raises RankupError for what cannot be saved."""
    if isinstance(thing, type) or thing is random:
        raise refused(name, thing, "an object, not the class or module that it comes from")

    def attributes(*, own_state: bool = False) -> Adapter:
        from rankup.runtime.checkpointing.registered_objects import ObjectAdapter

        held, known = declared.held(), declared.known
        return ObjectAdapter(name, thing, declared.device, held, known, has_state=own_state)

    if any(thing is each for each in declared.prepared):
        return {name: attributes()}
    if has_state(thing):
        if isinstance(thing, torch.nn.Module) or not of_library(type(thing)):
            return {name: thing, f"{name}.*": attributes(own_state=True)}
        return {name: thing}
    from rankup.runtime.checkpointing.registered_containers import adapter_of

    if (adapter := adapter_of(name, thing, declared.device, declared.held())) is not None:
        return {name: adapter}
    simple, value = simplify(thing)
    if simple:
        declared.values._add(name, value)
        return {name: Value(name, declared.values)}
    # A list, dict or deque of objects that have a state; or an object.
    if isinstance(thing, (list, dict, deque)) or (is_watched(type(thing)) and not cannot_be_set(thing)):
        return {name: attributes()}
    raise refused(name, thing, _taken_instead(name, thing))


def _taken_instead(name: str, thing: Any) -> str:
    from rankup.runtime.checkpointing.packing import content, is_array, unsaveable

    if isinstance(thing, torch.Tensor):
        return "a plain tensor: not sparse, quantized, sharded or without memory"
    if is_array(thing):
        if thing.flags.writeable:
            return f"an array of numbers, not of {thing.dtype}"
        return "an array that may be written to: a copy of it"
    if isinstance(thing, random.Random):
        return "a generator that has a state: random.Random(seed)"
    if hasattr(type(thing), "__next__"):
        return "no iterator of a library, whose place cannot be set: register what it goes over, or a number of steps"
    if isinstance(thing, set):
        return f"sets of numbers, strings and tensors; {unsaveable(content(thing), name)}"
    return (
        "a thing with state_dict and load_state_dict, an object of the script, a list, dict or set, a tensor or array, "
        "a generator of random numbers, or a number"
    )


class Value(Adapter):
    def __init__(self, name: str, values: Values) -> None:
        held = values._values
        super().__init__("value", name, None, lambda: held[name], partial(held.__setitem__, name))
