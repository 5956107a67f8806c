"""Random generators that a data set keeps in its attributes: ``self.rng = np.random.default_rng(0)``.

They are treated as the global ones are (``sample_rng.py``): seeded per sample, so that what they give depends neither
on workers and ranks nor on a resume.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Mapping
from types import ModuleType
from typing import Any

import torch

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
