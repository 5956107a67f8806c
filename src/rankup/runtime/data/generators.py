"""Random generators of the CPU: the global ones (torch's, Python's, NumPy's) while something other than the model draws
from them, and those that a data set keeps in its attributes (``self.rng = np.random.default_rng(0)``), or that its code
reads as a variable of its module (``RNG = np.random.default_rng(0)``).

In a rank's own process the global ones belong to the model (dropout). Code that reads, shuffles or collates data there
gets other random numbers, and the model's generators are restored afterwards. Those of a data set are treated alike
(``sample_rng.py``): seeded per sample, so that what they give depends neither on workers and ranks nor on a resume.
"""

from __future__ import annotations

import dis
import random
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import partial
from types import BuiltinMethodType, CodeType, FunctionType, MethodType, ModuleType
from typing import Any

import torch

from rankup.runtime.call_site import is_library
from rankup.runtime.seed import generator_access
from rankup.runtime.unregistered.walk import attributes_of

States = tuple[torch.Tensor, Any, Any]


def reseed(key: int) -> None:
    """Seed the generators of the CPU, and no device's."""
    torch.default_generator.manual_seed(key)
    random.seed(key)
    if "numpy" in sys.modules:
        sys.modules["numpy"].random.seed(key % 2**32)


def states() -> States:
    numpy = sys.modules.get("numpy")
    return torch.get_rng_state(), random.getstate(), numpy.random.get_state() if numpy else None


def restore(saved: States) -> None:
    torch.set_rng_state(saved[0])
    random.setstate(saved[1])
    if saved[2] is not None:
        sys.modules["numpy"].random.set_state(saved[2])


def same(a: States, b: States) -> bool:
    if not torch.equal(a[0], b[0]) or a[1] != b[1]:
        return False
    if a[2] is None or b[2] is None:
        return a[2] is None and b[2] is None
    return bool((a[2][1] == b[2][1]).all()) and a[2][2:] == b[2][2:]


class Generators:
    """Random numbers for one purpose, seeded with ``key``; each ``in_use`` continues where the last one ended."""

    def __init__(self, key: int) -> None:
        self._key = key
        self._states: States | None = None

    @property
    def untouched(self) -> bool:
        """Whether nothing was drawn from them so far."""
        fresh = Generators(self._key)
        with fresh.in_use():
            pass
        return self._states is None or fresh._states is None or same(fresh._states, self._states)

    @contextmanager
    def in_use(self) -> Iterator[None]:
        """While inside, the global generators are these; afterwards the old ones are restored."""
        before = states()
        if self._states is None:
            reseed(self._key)
        else:
            restore(self._states)
        try:
            yield
        finally:
            self._states = states()
            restore(before)


# A Subset of a data set whose Compose holds a transform, whose method calls what reads a generator.
_DEPTH = 8
_MOST_ITEMS = 50  # of a list or dict: transforms, not file names
_MOST_THINGS = 5000


def global_generators() -> set[int]:
    """Ids of the generators that torch, Python and NumPy draw from by themselves."""
    known = {id(torch.default_generator), id(getattr(random.random, "__self__", None))}
    if (numpy := sys.modules.get("numpy.random")) is not None:
        known.add(id(getattr(numpy.mtrand, "_rand", None)))
    return known


def held_generators(thing: object) -> list[Any]:
    """Those that ``thing`` holds or its code reads, and those of what it holds and calls; not the global ones, and not
    those of the operating system, which have no state."""
    seen, found = global_generators(), []
    level: list[Any] = [thing]
    for _ in range(_DEPTH):
        following: list[Any] = []
        for each in level:
            if id(each) in seen or len(seen) > _MOST_THINGS:
                continue
            seen.add(id(each))
            if generator_access(each) is None:
                following += _behind(each)
            else:
                found.append(each)
        level = following
    return found


def _behind(each: Any) -> list[Any]:
    """What ``each`` holds; of code of the script also what that reads."""
    if isinstance(each, (ModuleType, torch.Tensor)):
        return []
    if isinstance(each, (list, tuple, Mapping)):
        items = each.values() if isinstance(each, Mapping) else each
        return [*items] if len(each) <= _MOST_ITEMS else []
    if isinstance(each, FunctionType):
        return [*vars(each).values(), *_read_by(each)]
    if isinstance(each, (MethodType, BuiltinMethodType)):
        return [each.__self__, getattr(each, "__func__", None)]
    if isinstance(each, partial):
        return [each.func, *each.args, *each.keywords.values()]
    if isinstance(each, (staticmethod, classmethod)):
        return [each.__func__]
    if isinstance(each, property):
        return [each.fget]
    if isinstance(each, type):
        own = (kind for kind in each.__mro__ if not is_library(_file_of(sys.modules.get(kind.__module__))))
        return [value for kind in own for value in vars(kind).values()]
    return [*(held for _, held in attributes_of(each)), type(each)]


def _read_by(function: FunctionType) -> list[Any]:
    """What a function of the script reads besides what it is given."""
    if is_library(function.__code__.co_filename):
        return []
    defaults = [*(function.__defaults__ or ()), *(function.__kwdefaults__ or {}).values()]
    return [*defaults, *variables_read(function).values()]


def variables_read(function: FunctionType) -> dict[str, Any]:
    """The variables of its module, of modules of the script and of the functions around it that a function of the
    script reads, also in the functions within it."""
    found: dict[str, Any] = {}
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=False):
        with suppress(ValueError):  # not set yet
            found[name] = cell.cell_contents
    codes = [function.__code__]
    for code in codes:
        codes += [inner for inner in code.co_consts if isinstance(inner, CodeType)]
        # ``co_names`` has the names of attributes as well, which may be those of other variables.
        names = {
            one.argval for one in dis.get_instructions(code) if one.opname in ("LOAD_GLOBAL", "LOAD_NAME")
        }
        read = {name: function.__globals__[name] for name in names if name in function.__globals__}
        modules = [
            one for one in read.values() if isinstance(one, ModuleType) and not is_library(_file_of(one))
        ]
        found |= read
        found |= {
            f"{one.__name__}.{name}": vars(one)[name]
            for one in modules
            for name in code.co_names
            if name in vars(one)
        }
    return found


def _file_of(module: ModuleType | None) -> str:
    return getattr(module, "__file__", None) or ("" if module is sys.modules["__main__"] else "<frozen>")


def state_of(generator: Any) -> Any:
    """A copy, of a form that ``==`` compares."""
    get, _ = _access(generator)
    return _plain(get())


def set_state(generator: Any, state: Any) -> None:
    """Put back what ``state_of`` gave."""
    _, set_ = _access(generator)
    set_(torch.tensor(state, dtype=torch.uint8) if isinstance(generator, torch.Generator) else state)


def reseed_own(generator: Any, key: int) -> None:
    if isinstance(generator, torch.Generator):
        generator.manual_seed(key)
    elif hasattr(generator, "seed"):
        generator.seed(key if isinstance(generator, random.Random) else key % 2**32)
    else:
        bits = getattr(generator, "bit_generator", generator)
        bits.state = type(bits)(key).state


def _access(generator: Any) -> tuple[Callable[[], Any], Callable[[Any], Any]]:
    access = generator_access(generator)
    assert access is not None
    return access


def _plain(value: Any) -> Any:
    """NumPy's arrays as lists."""
    if isinstance(value, Mapping):
        return {key: _plain(item) for key, item in value.items()}
    return value.tolist() if hasattr(value, "tolist") else value
