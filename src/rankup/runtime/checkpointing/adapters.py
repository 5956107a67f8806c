"""Things that have no ``state_dict`` of their own: an adapter for each kind gets and sets their state."""

from __future__ import annotations

import copy
import random
import sys
from collections import Counter, OrderedDict
from collections.abc import Callable
from typing import Any, Protocol

import torch

from rankup.errors import RankupError
from rankup.runtime.pytree import map_tensors

SIMPLE = (bool, int, float, complex, str, bytes, type(None))
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
    """Gives an object of another kind the protocol of ``Stateful``. ``kind`` is the key of its state."""

    per_rank = False
    kind = ""
    thing: Any = None  # what is registered

    def __init__(self, name: str) -> None:
        self._name = name

    def state_dict(self) -> dict[str, Any]:
        return {self.kind: self._get()}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        if self.kind not in state_dict:
            raise self._other(f"{'/'.join(map(str, state_dict))}, not {self.kind}")
        self._set(state_dict[self.kind])

    def _get(self) -> Any:
        raise NotImplementedError

    def _set(self, saved: Any) -> None:
        raise NotImplementedError

    def _other(self, what: str) -> RankupError:
        return RankupError(
            "other-registered",
            f"run.register({self._name}=…): the state has another kind of object with this name ({what})",
            hint="register the same things under the same names as the run that saved it",
        )


class TensorAdapter(Adapter):
    kind = "tensor"

    def __init__(self, name: str, tensor: torch.Tensor) -> None:
        super().__init__(name)
        self.thing = tensor

    def _get(self) -> torch.Tensor:
        held: torch.Tensor = self.thing
        return held.detach()

    def _set(self, saved: torch.Tensor) -> None:
        mine = self.thing
        if saved.shape != mine.shape or saved.dtype != mine.dtype:
            raise self._other(
                f"{saved.dtype} {tuple(saved.shape)}; this run has {mine.dtype} {tuple(mine.shape)}"
            )
        with torch.no_grad():
            mine.copy_(saved)


class ArrayAdapter(Adapter):
    kind = "array"

    def __init__(self, name: str, array: Any) -> None:
        super().__init__(name)
        self.thing = array

    def _get(self) -> torch.Tensor:
        return torch.from_numpy(self.thing.copy())

    def _set(self, saved: torch.Tensor) -> None:
        loaded, mine = saved.numpy(), self.thing
        if loaded.shape != mine.shape or loaded.dtype != mine.dtype:
            raise self._other(f"{loaded.dtype} {loaded.shape}; this run has {mine.dtype} {mine.shape}")
        mine[...] = loaded


class ContainerAdapter(Adapter):
    """A list, dict, set or deque. Tensors in it that were on an accelerator are restored to this rank's device."""

    kind = "items"

    def __init__(self, name: str, thing: Any, device: torch.device) -> None:
        super().__init__(name)
        self.thing = thing
        self._device = device

    def state_dict(self) -> dict[str, Any]:
        items = content(self.thing)
        if (place := unsaveable(items, self._name)) is not None:
            raise RankupError(
                "unsaveable-state",
                f"{place}, which a snapshot cannot contain",
                hint="numbers, strings, tensors, arrays, and lists, dicts, tuples and sets of them",
                exit_code=1,
            )
        elsewhere: list[int] = []
        count = iter(range(sys.maxsize))

        def seen(tensor: torch.Tensor) -> torch.Tensor:
            number = next(count)
            if tensor.device.type != "cpu":
                elsewhere.append(number)
            return tensor

        return {self.kind: map_tensors(seen, packed(items)), "on_device": elsewhere}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        saved, thing = state_dict.get(self.kind), self.thing
        if not isinstance(saved, dict if isinstance(thing, dict) else list):
            raise self._other(f"not a {type(thing).__name__}")
        elsewhere, count = set(state_dict["on_device"]), iter(range(sys.maxsize))
        loaded = unpacked(
            map_tensors(
                lambda tensor: tensor.to(self._device) if next(count) in elsewhere else tensor,
                copy.deepcopy(saved),
            )
        )
        thing.clear()
        if isinstance(thing, (dict, set)):
            thing.update(loaded)
        else:
            thing.extend(loaded)


class GeneratorAdapter(Adapter):
    """A random number generator, by the two functions that get and set its state."""

    kind = "generator"

    def __init__(self, name: str, generator: Any, get: Callable[[], Any], set_: Callable[[Any], Any]) -> None:
        super().__init__(name)
        self.thing = generator  # which is registered: no warning names it
        self._getter, self._setter = get, set_

    def _get(self) -> Any:
        return self._getter()

    def _set(self, saved: Any) -> None:
        self._setter(saved)


def generator_adapter(name: str, thing: Any, numpy: Any) -> GeneratorAdapter | None:
    if isinstance(thing, torch.Generator):
        return GeneratorAdapter(name, thing, thing.get_state, thing.set_state)
    if isinstance(thing, random.Random):
        if isinstance(thing, random.SystemRandom):
            raise refused(name, thing, "a generator that has a state: random.Random(seed)")
        return GeneratorAdapter(name, thing, thing.getstate, thing.setstate)
    if numpy is None:
        return None
    if isinstance(thing, numpy.random.Generator):
        bits = thing.bit_generator
        return GeneratorAdapter(
            name,
            thing,
            lambda: _arrays_to_tensors(bits.state, numpy),
            lambda state: setattr(bits, "state", _tensors_to_arrays(state)),
        )
    if isinstance(thing, numpy.random.RandomState):
        return GeneratorAdapter(
            name,
            thing,
            lambda: _arrays_to_tensors(thing.get_state(legacy=False), numpy),
            lambda state: thing.set_state(_tensors_to_arrays(state)),
        )
    return None


def _arrays_to_tensors(value: Any, numpy: Any) -> Any:
    """torch.load reads no arrays. As int64, since older torch has no unsigned tensors: it wraps around both ways."""
    if isinstance(value, dict):
        return {key: _arrays_to_tensors(item, numpy) for key, item in value.items()}
    if isinstance(value, numpy.ndarray):
        return (str(value.dtype), torch.from_numpy(value.astype(numpy.int64)))
    return value


def _tensors_to_arrays(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _tensors_to_arrays(item) for key, item in value.items()}
    if isinstance(value, tuple):
        return value[1].numpy().astype(value[0])
    return value


def article(thing: Any) -> str:
    name = f"{type(thing).__module__}.{type(thing).__qualname__}".removeprefix("builtins.")
    return f"{'an' if name[0].lower() in 'aeiou' else 'a'} {name}"


def refused(name: str, thing: Any, wanted: str) -> RankupError:
    what = thing.__name__ if isinstance(thing, type) or thing is random else article(thing)
    return RankupError("not-stateful", f"run.register({name}=…) got {what}; it takes {wanted}")


def unsaveable(value: Any, place: str) -> str | None:
    """The first thing in nested lists and dicts that a snapshot cannot contain, with its place; None without one."""
    if isinstance(value, (torch.Tensor, *SIMPLE)) or _is_array(value):
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


def _is_array(value: Any) -> bool:
    """An array or a number of NumPy's."""
    numpy = sys.modules.get("numpy")
    if numpy is None or not (type(value) is numpy.ndarray or isinstance(value, numpy.generic)):
        return False
    return value.dtype.kind in "biufcSUmM"


def packed(value: Any) -> Any:
    """``value`` with each array and number of NumPy's, at any depth, as a tuple of plain values: ``torch.load`` reads
    no arrays, and thousands of them (a replay buffer) would be slow as tensors."""
    return _nested(packed, value) if not _is_array(value) else _tuple_of(value)


def unpacked(value: Any) -> Any:
    """The value of which ``packed`` made ``value``."""
    if type(value) is tuple and len(value) == 4 and type(value[0]) is str and value[0] == _ARRAY:
        import numpy

        _, dtype, shape, content = value
        return numpy.frombuffer(content, dtype).reshape(shape).copy()[()]
    return _nested(unpacked, value)


def _tuple_of(array: Any) -> tuple[str, str, tuple[int, ...], bytes]:
    return _ARRAY, array.dtype.str, array.shape, array.tobytes()


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
