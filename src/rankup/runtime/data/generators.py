"""Random generators of the CPU: the global ones (torch's, Python's, NumPy's) while something other than the model draws
from them, and those that a data set keeps in its attributes (``self.rng = np.random.default_rng(0)``).

In a rank's own process the global ones belong to the model (dropout). Code that reads, shuffles or collates data there
gets other random numbers, and the model's generators are restored afterwards. Those of a data set are treated alike
(``sample_rng.py``): seeded per sample, so that what they give depends neither on workers and ranks nor on a resume.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from types import ModuleType
from typing import Any

import torch

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


_DEPTH = 6  # a Subset of a data set whose Compose holds a transform that holds a generator
_MOST_ITEMS = 50  # of a list or dict: transforms, not file names
_MOST_THINGS = 5000


def generator_kinds() -> tuple[type, ...]:
    """torch's, Python's and NumPy's, as far as they are loaded."""
    numpy = sys.modules.get("numpy.random")
    kinds: tuple[type, ...] = (torch.Generator, random.Random)
    return kinds if numpy is None else (*kinds, numpy.Generator, numpy.RandomState)


def global_generators() -> set[int]:
    """Ids of the generators that torch, Python and NumPy draw from by themselves."""
    known = {id(torch.default_generator), id(getattr(random.random, "__self__", None))}
    if (numpy := sys.modules.get("numpy.random")) is not None:
        known.add(id(getattr(numpy.mtrand, "_rand", None)))
    return known


def held_generators(thing: object) -> list[Any]:
    """Those that ``thing`` holds, and what it holds; not the global ones."""
    kinds, seen, found = generator_kinds(), global_generators(), []
    level: list[Any] = [thing]
    for _ in range(_DEPTH):
        following: list[Any] = []
        for each in level:
            if id(each) in seen or len(seen) > _MOST_THINGS:
                continue
            seen.add(id(each))
            if isinstance(each, kinds):
                found.append(each)
            elif isinstance(each, (list, tuple, Mapping)):
                if len(each) <= _MOST_ITEMS:
                    following += each.values() if isinstance(each, Mapping) else each
            elif hasattr(each, "__dict__") and not isinstance(each, (type, ModuleType, torch.Tensor)):
                following += vars(each).values()
        level = following
    return found


def state_of(generator: Any) -> Any:
    """A copy, of a form that ``==`` compares."""
    if isinstance(generator, torch.Generator):
        return generator.get_state().tolist()
    if isinstance(generator, random.Random):
        return generator.getstate()
    if hasattr(generator, "bit_generator"):
        return _plain(generator.bit_generator.state)
    return _plain(generator.get_state(legacy=False))


def set_state(generator: Any, state: Any) -> None:
    """Put back what ``state_of`` gave."""
    if isinstance(generator, torch.Generator):
        generator.set_state(torch.tensor(state, dtype=torch.uint8))
    elif isinstance(generator, random.Random):
        generator.setstate(state)
    elif hasattr(generator, "bit_generator"):
        generator.bit_generator.state = state
    else:
        generator.set_state(state)


def reseed_own(generator: Any, key: int) -> None:
    if isinstance(generator, torch.Generator):
        generator.manual_seed(key)
    elif hasattr(generator, "bit_generator"):
        generator.bit_generator.state = type(generator.bit_generator)(key).state
    else:
        generator.seed(key if isinstance(generator, random.Random) else key % 2**32)


def _plain(value: Any) -> Any:
    """NumPy's arrays as lists."""
    if isinstance(value, Mapping):
        return {key: _plain(item) for key, item in value.items()}
    return value.tolist() if hasattr(value, "tolist") else value
