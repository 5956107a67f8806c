"""A module of a script, with a generator of its own."""

from __future__ import annotations

import random

RNG = random.Random(0)


def drawn() -> float:
    return RNG.random()
