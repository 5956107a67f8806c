"""The global generators of the CPU (torch's, Python's, NumPy's) while something other than the model draws from them.

In a rank's own process they belong to the model (dropout). Code that reads, shuffles or collates data there gets other
random numbers, and the model's generators are restored afterwards.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Iterator
from contextlib import contextmanager
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
