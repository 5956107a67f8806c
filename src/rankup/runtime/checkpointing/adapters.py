"""Things that have no ``state_dict`` of their own: an adapter for each kind gets and sets their state."""

from __future__ import annotations

import copy
import itertools
import random
import sys
from collections import Counter, OrderedDict, deque
from collections.abc import Callable
from typing import Any, Protocol

import torch

from rankup.errors import RankupError
from rankup.runtime.pytree import map_tensors, tensors_in
from rankup.runtime.seed import generator_access
from rankup.runtime.unregistered.marks import SIMPLE

# What a snapshot holds as it is (snapshots/state.py).
_NESTED = (dict, OrderedDict, Counter, list, tuple, set)
_ARRAY = "rankup: numpy.ndarray"  # the first item of an array in a container, as a snapshot holds it


class Stateful(Protocol):
    """Anything that can be registered: schedules, averages, counters. Its state is the same on all ranks, unless
    ``per_rank`` is True, and the same in every repetition of a training, unless ``timed`` is True.

    ``per_rank`` things may have ``load_rank_states(states)``: it is called instead of ``load_state_dict`` if another
    number of ranks saved them. Each old rank's state is given to one rank; some ranks get an empty list. Without this
    method a thing starts without a saved state."""

    def state_dict(self) -> dict[str, Any]: ...

    def load_state_dict(self, state_dict: dict[str, Any]) -> Any: ...


class Adapter:
    """Gives a thing of another kind the protocol of ``Stateful``, by a function that gets its state and one that sets
    it. ``kind`` is the key of the state."""

    per_rank = False

    def __init__(
        self, kind: str, name: str, thing: Any, get: Callable[[], Any], set_: Callable[[Any], Any]
    ) -> None:
        self.kind = kind
        self.thing = thing  # what is registered
        self._name = name
        self._get, self._set = get, set_

    def state_dict(self) -> dict[str, Any]:
        return {self.kind: self._get()}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        if self.kind not in state_dict:
            raise other(self._name, f"{'/'.join(map(str, state_dict))}, not {self.kind}")
        self._set(state_dict[self.kind])

    def loop_begins(self) -> None:
        """Called before its state is taken for the first time."""

    def parts(self, state: dict[str, Any]) -> dict[str, Any]:
        """A state by what it holds; by ``""`` if that is one thing."""
        return {"": state}

    @property
    def whole(self) -> bool:
        """Whether it is the same on all ranks, to the last bit."""
        return self.kind in ("tensor", "array", "generator")


def adapter_of(name: str, value: Any, device: torch.device) -> Adapter | None:
    """Of a tensor, an array, a generator of random numbers, or a container of plain values and tensors; else None."""

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
        return ContainerAdapter(name, value, device)
    return None


class ContainerAdapter(Adapter):
    """A list, dict, set or deque. Tensors in it that were on an accelerator are restored to this rank's device."""

    def __init__(self, name: str, thing: Any, device: torch.device) -> None:
        super().__init__("items", name, thing, self._items, self._fill)
        self._device = device

    def state_dict(self) -> dict[str, Any]:
        items = self._items()
        places = enumerate(tensors_in(items))
        return {self.kind: items, "on_device": [at for at, one in places if one.device.type != "cpu"]}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        elsewhere, count = set(state_dict.get("on_device", ())), itertools.count()

        def placed(tensor: torch.Tensor) -> torch.Tensor:
            return tensor.to(self._device) if next(count) in elsewhere else tensor

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
        return packed(items)

    def _fill(self, saved: Any) -> None:
        thing = self.thing
        if not isinstance(saved, dict if isinstance(thing, dict) else list):
            raise other(self._name, f"not a {type(thing).__name__}")
        loaded = unpacked(saved)
        thing.clear()
        if isinstance(thing, (dict, set)):
            thing.update(loaded)
        else:
            thing.extend(loaded)


def is_array(value: Any) -> bool:
    numpy = sys.modules.get("numpy")
    return numpy is not None and isinstance(value, numpy.ndarray)


def as_torch(array: Any) -> torch.Tensor | None:
    """A copy, as ``torch.load`` reads it; None of what torch has no numbers for."""
    try:
        return torch.from_numpy(array.copy())
    except (TypeError, ValueError):
        return None


def other(name: str, what: str) -> RankupError:
    return RankupError(
        "other-registered",
        f"run.register({name}=…): the state has another kind of object with this name ({what})",
        hint="register the same things under the same names as the run that saved it",
    )


def article(thing: Any) -> str:
    name = f"{type(thing).__module__}.{type(thing).__qualname__}".removeprefix("builtins.")
    return f"{'an' if name[0].lower() in 'aeiou' else 'a'} {name}"


def refused(name: str, thing: Any, wanted: str) -> RankupError:
    what = thing.__name__ if isinstance(thing, type) or thing is random else article(thing)
    return RankupError("not-stateful", f"run.register({name}=…) got {what}; it takes {wanted}")


def unsaveable(value: Any, place: str) -> str | None:
    """The first thing in nested lists and dicts that a snapshot cannot contain, with its place; None without one."""
    if isinstance(value, (torch.Tensor, *SIMPLE)) or _is_packable(value):
        return None
    if type(value) not in _NESTED:
        return f"{place} is {article(value)}"
    if isinstance(value, dict):
        if any(isinstance(key, torch.Tensor) for key in value):
            return f"a key of {place} is a tensor"  # which is found by its identity
        inner = [(key, f"a key of {place}") for key in value]
        inner += [(item, f"{place}[{key!r}]") for key, item in value.items()]
    else:
        inner = [(item, f"{place}[{index}]") for index, item in enumerate(value)]
    return next((found for item, at in inner if (found := unsaveable(item, at)) is not None), None)


def _is_packable(value: Any) -> bool:
    """An array or a number of NumPy's."""
    numpy = sys.modules.get("numpy")
    if numpy is None or not (type(value) is numpy.ndarray or isinstance(value, numpy.generic)):
        return False
    return value.dtype.kind in "biufcSUmM"


def packed(value: Any) -> Any:
    """``value`` with each array and number of NumPy's, at any depth, as a tuple of plain values: ``torch.load`` reads
    no arrays, and thousands of them (a replay buffer) would be slow as tensors."""
    if _is_packable(value):
        return _ARRAY, value.dtype.str, value.shape, value.tobytes()
    return _nested(packed, value)


def is_packed(value: Any) -> bool:
    """Whether it is an array, as ``packed`` gives it."""
    return type(value) is tuple and len(value) == 4 and type(value[0]) is str and value[0] == _ARRAY


def unpacked(value: Any) -> Any:
    """The value of which ``packed`` made ``value``."""
    if is_packed(value):
        import numpy

        _, dtype, shape, content = value
        return numpy.frombuffer(content, dtype).reshape(shape).copy()[()]
    return _nested(unpacked, value)


def _nested(change: Callable[[Any], Any], value: Any) -> Any:
    """``value``, with what a container holds changed."""
    if type(value) not in _NESTED:
        return value
    if isinstance(value, dict):
        return type(value)({change(key): change(item) for key, item in value.items()})
    return type(value)(change(item) for item in value)


def content(thing: Any) -> Any:
    """The content of a dict, list, set or deque (of any subclass) as a new dict or list."""
    if isinstance(thing, dict):
        return dict(thing)
    # A set has another order in each process.
    return sorted(thing, key=repr) if isinstance(thing, set) else list(thing)
