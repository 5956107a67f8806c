"""What is alive in this process, of the types that someone asks for."""

from __future__ import annotations

import gc
from collections.abc import Callable
from itertools import chain
from typing import Any


def objects_of(wanted: Callable[[type], bool]) -> list[Any]:
    """All objects of Python classes that are ``wanted``.

    Nobody may hold a list of all objects while other threads run: a tuple that one of them is just making
    (``tuple(generator)``) must be referred to by nobody else until it is complete, or CPython raises SystemError there.
    So their types are asked for in one call of a function in C, which lets go of the list before it returns; an object
    of a Python class refers to its class.
    """
    types = set(map(type, chain.from_iterable(map(gc.get_objects, (None,)))))
    chosen = {kind for kind in types if wanted(kind)}
    return [thing for thing in gc.get_referrers(*chosen) if type(thing) in chosen] if chosen else []
