"""What ``run.register`` accepts, and how each kind of thing is saved and restored.

| registered | in a snapshot | at a resume |
|---|---|---|
| a thing with ``state_dict`` | its ``state_dict()`` | ``load_state_dict`` |
| list, dict, set, deque; tensor, NumPy array; generator of random numbers | its content | the same object gets it |
| number, bool, string, None, tuple of these | ``run.values.NAME`` | ``run.values.NAME`` |

Everything has the protocol of the first row in the end (``Stateful``): the other kinds get an adapter.
"""

from __future__ import annotations

import copy
import random
import sys
from collections import Counter, OrderedDict, deque
from collections.abc import Callable
from typing import Any, Protocol

import torch

from rankup.core.nearest import nearest
from rankup.errors import RankupError
from rankup.runtime.pytree import map_tensors

_SIMPLE = (bool, int, float, complex, str, bytes, type(None))
_NESTED = (
    dict,
    OrderedDict,
    Counter,
    list,
    tuple,
    set,
)  # what a snapshot holds as it is (snapshots/staging.py)


class Stateful(Protocol):
    """Anything that can be kept: schedules, averages, counters. The same on all ranks, unless ``per_rank`` is True;
    the same in every repetition of a training, unless ``timed`` is.

    ``per_rank`` things may have ``load_rank_states(states)``: it is called instead of ``load_state_dict`` where another
    number of ranks saved them. Each old rank's state is given to one rank; some ranks get an empty list. A thing
    without it begins anew there."""

    def state_dict(self) -> dict[str, Any]: ...

    def load_state_dict(self, state_dict: dict[str, Any]) -> Any: ...


class Values:
    """``run.values``: the simple values that were registered, as attributes that can be read and set."""

    def __init__(self) -> None:
        self.__dict__["_values"] = {}
        self.__dict__["_untouched"] = set()

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
                f"run.values.{name} = {_article(value)}: only numbers, strings, None and tuples of them",
                hint=f"register a list, a dict or a tensor itself, run.register({name}=…), and change it in place",
                exit_code=1,
            )
        self._values[name] = new

    def __dir__(self) -> list[str]:
        return sorted(self._values)

    def __repr__(self) -> str:
        return f"Values({', '.join(f'{name}={value!r}' for name, value in self._values.items())})"

    def _check(self, name: str) -> None:
        if name not in self._values:
            near = nearest(name, self._values)
            known = ", ".join(sorted(self._values)) or "nothing yet"
            raise RankupError(
                "not-registered",
                f"run.values has no {name!r}; registered: {known}",
                hint=f"run.values.{near}" if near else f"run.register({name}=0.0), before the loop",
                exit_code=1,
            )
        self._untouched.discard(name)

    def _add(self, name: str, value: Any) -> None:
        self._values[name] = value
        self._untouched.add(name)

    def _unused(self) -> list[str]:
        """Names that nobody has read or set since the last call: a script that counts in a variable of its own."""
        names = sorted(self._untouched)
        self._untouched.clear()
        return names


def simplify(value: Any) -> tuple[bool, Any]:
    """(whether it is a simple value, that value); numbers of NumPy and tensors of one number become Python's."""
    numpy = sys.modules.get("numpy")
    if (isinstance(value, torch.Tensor) and value.dim() == 0) or (
        numpy is not None and isinstance(value, numpy.generic)
    ):
        value = value.item()
    if type(value) is tuple:
        parts = [simplify(part) for part in value]
        return all(simple for simple, _ in parts), tuple(part for _, part in parts)
    return type(value) in _SIMPLE, value


def as_stateful(name: str, thing: Any, values: Values, device: torch.device) -> Stateful:
    """``thing``, or an adapter that has its ``state_dict``. Raises RankupError for what cannot be saved."""
    numpy = sys.modules.get("numpy")
    if isinstance(thing, type) or thing is random:
        raise _refused(name, thing, "an object, not the class or module that it comes from")
    if hasattr(thing, "state_dict") and hasattr(thing, "load_state_dict"):
        return thing  # type: ignore[no-any-return]
    if isinstance(thing, torch.Tensor):
        if thing.layout != torch.strided or thing.is_quantized or thing.is_meta or hasattr(thing, "to_local"):
            raise _refused(name, thing, "a plain tensor: not sparse, quantized, sharded or without memory")
        return _Tensor(name, thing)
    if numpy is not None and isinstance(thing, numpy.ndarray):
        try:
            torch.from_numpy(thing[:0].copy() if thing.ndim else thing.copy())
        except (TypeError, ValueError):
            raise _refused(name, thing, f"an array of numbers, not of {thing.dtype}") from None
        if not thing.flags.writeable:
            raise _refused(name, thing, "an array that may be written to: a copy of it")
        return _Array(name, thing)
    generator = _generator(name, thing, numpy)
    if generator is not None:
        return generator
    if isinstance(thing, (list, dict, set, deque)):
        if (place := unsaveable(_content(thing), name)) is not None:
            raise _refused(name, thing, f"lists and dicts of numbers, strings and tensors; {place}")
        return _Container(name, thing, device)
    simple, value = simplify(thing)
    if simple:
        values._add(name, value)
        return Value(name, values)
    raise _refused(
        name,
        thing,
        "a thing with state_dict and load_state_dict, a list, dict or set, a tensor or array, a generator of random "
        "numbers, or a number",
    )


def unsaveable(value: Any, place: str) -> str | None:
    """The first thing in nested lists and dicts that no snapshot can hold, with its place; None where there is none."""
    if isinstance(value, (torch.Tensor, *_SIMPLE)):
        return None
    if type(value) not in _NESTED:
        return f"{place} is {_article(value)}"
    if isinstance(value, dict):
        inner = [(key, f"a key of {place}") for key in value]
        inner += [(item, f"{place}[{key!r}]") for key, item in value.items()]
    else:
        inner = [(item, f"{place}[{index}]") for index, item in enumerate(value)]
    return next((found for item, at in inner if (found := unsaveable(item, at)) is not None), None)


def _content(thing: Any) -> Any:
    """Of a dict, list, set or deque, of whatever class: a new dict or list."""
    if isinstance(thing, dict):
        return dict(thing)
    # A set has another order in each process.
    return sorted(thing, key=repr) if isinstance(thing, set) else list(thing)


class Adapter:
    """A thing of another kind with the protocol of ``Stateful``. ``kind`` is the key of its state."""

    per_rank = False
    kind = ""

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
            f"run.register({self._name}=…): the state holds another kind of thing by this name ({what})",
            hint="register the same things under the same names as the run that saved it",
        )


class Value(Adapter):
    kind = "value"

    def __init__(self, name: str, values: Values) -> None:
        super().__init__(name)
        self._values = values

    def _get(self) -> Any:
        return self._values._values[self._name]

    def _set(self, saved: Any) -> None:
        self._values._values[self._name] = saved


class _Tensor(Adapter):
    kind = "tensor"

    def __init__(self, name: str, tensor: torch.Tensor) -> None:
        super().__init__(name)
        self._tensor = tensor

    def _get(self) -> torch.Tensor:
        return self._tensor.detach()

    def _set(self, saved: torch.Tensor) -> None:
        mine = self._tensor
        if saved.shape != mine.shape or saved.dtype != mine.dtype:
            raise self._other(
                f"{saved.dtype} {tuple(saved.shape)}; this run has {mine.dtype} {tuple(mine.shape)}"
            )
        with torch.no_grad():
            mine.copy_(saved)


class _Array(Adapter):
    kind = "array"

    def __init__(self, name: str, array: Any) -> None:
        super().__init__(name)
        self._array = array

    def _get(self) -> torch.Tensor:
        return torch.from_numpy(self._array.copy())

    def _set(self, saved: torch.Tensor) -> None:
        loaded, mine = saved.numpy(), self._array
        if loaded.shape != mine.shape or loaded.dtype != mine.dtype:
            raise self._other(f"{loaded.dtype} {loaded.shape}; this run has {mine.dtype} {mine.shape}")
        mine[...] = loaded


class _Container(Adapter):
    """A list, dict, set or deque. Tensors in it that were on an accelerator come back to this rank's device."""

    kind = "items"

    def __init__(self, name: str, thing: Any, device: torch.device) -> None:
        super().__init__(name)
        self._thing = thing
        self._device = device

    def state_dict(self) -> dict[str, Any]:
        items = _content(self._thing)
        if (place := unsaveable(items, self._name)) is not None:
            raise RankupError(
                "unsaveable-state",
                f"{place}, which a snapshot cannot hold",
                hint="numbers (.item() of NumPy's), strings, tensors, and lists, dicts, tuples and sets of them",
                exit_code=1,
            )
        elsewhere: list[int] = []
        count = iter(range(sys.maxsize))

        def seen(tensor: torch.Tensor) -> torch.Tensor:
            number = next(count)
            if tensor.device.type != "cpu":
                elsewhere.append(number)
            return tensor

        return {self.kind: map_tensors(seen, items), "on_device": elsewhere}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        saved, thing = state_dict.get(self.kind), self._thing
        if not isinstance(saved, dict if isinstance(thing, dict) else list):
            raise self._other(f"not a {type(thing).__name__}")
        elsewhere, count = set(state_dict["on_device"]), iter(range(sys.maxsize))
        loaded = map_tensors(
            lambda tensor: tensor.to(self._device) if next(count) in elsewhere else tensor,
            copy.deepcopy(saved),
        )
        thing.clear()
        if isinstance(thing, (dict, set)):
            thing.update(loaded)
        else:
            thing.extend(loaded)


class _Generator(Adapter):
    """A generator of random numbers, by the two functions that get and set its state."""

    kind = "generator"

    def __init__(self, name: str, get: Callable[[], Any], set_: Callable[[Any], Any]) -> None:
        super().__init__(name)
        self._getter, self._setter = get, set_

    def _get(self) -> Any:
        return self._getter()

    def _set(self, saved: Any) -> None:
        self._setter(saved)


def _generator(name: str, thing: Any, numpy: Any) -> _Generator | None:
    if isinstance(thing, torch.Generator):
        return _Generator(name, thing.get_state, thing.set_state)
    if isinstance(thing, random.Random):
        if isinstance(thing, random.SystemRandom):
            raise _refused(name, thing, "a generator that has a state: random.Random(seed)")
        return _Generator(name, thing.getstate, thing.setstate)
    if numpy is None:
        return None
    if isinstance(thing, numpy.random.Generator):
        bits = thing.bit_generator
        return _Generator(
            name,
            lambda: _arrays_to_tensors(bits.state, numpy),
            lambda state: setattr(bits, "state", _tensors_to_arrays(state)),
        )
    if isinstance(thing, numpy.random.RandomState):
        return _Generator(
            name,
            lambda: _arrays_to_tensors(thing.get_state(legacy=False), numpy),
            lambda state: thing.set_state(_tensors_to_arrays(state)),
        )
    return None


def _arrays_to_tensors(value: Any, numpy: Any) -> Any:
    """torch.load reads no arrays; as int64, since older torch has no unsigned tensors (a wrap-around both ways)."""
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


def _article(thing: Any) -> str:
    name = f"{type(thing).__module__}.{type(thing).__qualname__}".removeprefix("builtins.")
    return f"{'an' if name[0].lower() in 'aeiou' else 'a'} {name}"


def _refused(name: str, thing: Any, wanted: str) -> RankupError:
    what = thing.__name__ if isinstance(thing, type) or thing is random else _article(thing)
    return RankupError("not-stateful", f"run.register({name}=…) got {what}; it takes {wanted}")
