"""A process that others are forked from, once it has imported everything: its import makes each fork cheap.

What is there is frozen: a child whose collector visited it would copy it, page by page, which takes longer than most
trainings of the tests. Its memory is in large pages, of which a fork has fewer to note. What torch would undo at an
interpreter's end, operator by operator, goes with the process.
"""

from __future__ import annotations

import ctypes
import gc
import os
import weakref

LARGE = 2 << 20
COLLAPSE = 25  # MADV_COLLAPSE, of Linux 6.1; an older one refuses it, and the pages stay small


def in_large_pages() -> None:
    libc = ctypes.CDLL(None)
    with open("/proc/self/maps") as file:  # noqa: PTH123
        areas = [line.split() for line in file]
    for addresses, access, _, _, inode, *_ in areas:
        if access == "rw-p" and inode == "0":
            start, end = (int(address, 16) for address in addresses.split("-"))
            start, end = -(-start // LARGE) * LARGE, end // LARGE * LARGE
            if start < end:
                libc.madvise(ctypes.c_void_p(start), ctypes.c_size_t(end - start), COLLAPSE)


os.environ.pop("PYTHONPATH", None)  # by which alone it is found; it is not for what is forked
for finalizer in list(weakref.finalize._registry):  # type: ignore[attr-defined]
    finalizer.atexit = False
gc.collect()
gc.freeze()
in_large_pages()
