"""What is alive in this process, of the types that someone asks for."""

from __future__ import annotations

import gc
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import compress
from typing import Any

# Longer than a walk over a million objects; and for so long this thread may have to wait for a busy one, once.
_UNDISTURBED_S = 1.0


def objects_of(wanted: Callable[[type], bool]) -> list[Any]:
    """All objects whose type is ``wanted``. A process with torch has a million objects: no Python per object."""
    with _undisturbed():
        alive = gc.get_objects()
        types = list(map(type, alive))
        chosen = {kind for kind in set(types) if wanted(kind)}
        found = list(compress(alive, map(chosen.__contains__, types)))
        del alive, types
    return found


@contextmanager
def _undisturbed() -> Iterator[None]:
    """No other thread runs Python meanwhile.

    A tuple that another thread is just making (``tuple(generator)``) may be referred to by nobody else until it is
    complete: CPython raises SystemError there. A list of all objects refers to it.
    """
    before = sys.getswitchinterval()
    sys.setswitchinterval(_UNDISTURBED_S)
    try:
        end = time.perf_counter() + 2 * before
        while time.perf_counter() < end:
            pass  # threads that wait for the interpreter by the interval of before get it now
        yield
    finally:
        sys.setswitchinterval(before)
