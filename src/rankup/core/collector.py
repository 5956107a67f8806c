"""Python's collector of cycles, off for a while: where many objects are made and all stay in use, it walks them again
and again, a quarter to a third of the time."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def uncollected(*, to_the_end: bool = False) -> Iterator[None]:
    """``to_the_end``: the process most likely ends afterwards, so that what was made is not walked for that either."""
    enabled = gc.isenabled()
    if to_the_end:
        gc.unfreeze()  # of the time before, if it did not end
    gc.disable()
    try:
        yield
    finally:
        if to_the_end:
            gc.freeze()
        if enabled:
            gc.enable()
