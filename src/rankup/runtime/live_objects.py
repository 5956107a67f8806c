"""The live objects of this process, by type."""

from __future__ import annotations

import gc
from collections.abc import Callable
from itertools import chain
from typing import Any


def objects_of(wanted: Callable[[type], bool]) -> list[Any]:
    """All objects of Python classes that are ``wanted``.

    There must be no list of all objects while other threads run: if a thread is just making a tuple
    (``tuple(generator)``), a second reference to it makes CPython raise SystemError there. So one call of a function in
    C collects the types, and releases the list before it returns; an object of a Python class refers to its class.
    """
    types = set(map(type, chain.from_iterable(map(gc.get_objects, (None,)))))
    chosen = {kind for kind in types if wanted(kind)}
    return [thing for thing in gc.get_referrers(*chosen) if type(thing) in chosen] if chosen else []
