"""One function over many items, in copies of this process: one for each CPU core that it may use."""

from __future__ import annotations

import contextlib
import fcntl
import os
import pickle
import signal
import sys
import threading
import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import BinaryIO, Generic, TypeVar

T = TypeVar("T")
R = TypeVar("R")

MOST = 8  # a login node has many cores, and many users
_PIPE_BYTES = 1 << 20


def copies_for(items: int) -> int:
    """How many copies ``each`` makes: 0, which means this process, where a fork is not safe or brings nothing."""
    if sys.platform != "linux" or threading.active_count() > 1:
        return 0
    copies = min(items, len(os.sched_getaffinity(0)), MOST)
    return copies if copies > 1 else 0


def each(function: Callable[[T], R], items: Sequence[T]) -> Iterator[R]:
    """``map(function, items)``, in the order of the items. Results are pickled, ``function`` and ``items`` are not.

    An item that fails in its copy, by an exception or because the copy is killed, is computed again in this process:
    so what ``function`` raises is raised here.
    """
    count = copies_for(len(items))
    if not count:
        yield from map(function, items)
        return
    copies: list[_Copy[R]] = []
    try:
        for first in range(count):
            # One by one: those that were made must end if the next one fails.
            copies.append(_Copy(function, items[first::count]))  # noqa: PERF401
        for number, item in enumerate(items):
            answer = copies[number % count].next()
            yield function(item) if answer is None else answer[0]
    finally:
        for copy in copies:
            copy.end()


class _Copy(Generic[R]):
    """A forked process that computes its items one after the other, and waits while its results are not read."""

    def __init__(self, function: Callable[[T], R], items: Sequence[T]) -> None:
        reading, writing = os.pipe()
        with contextlib.suppress(OSError):  # more than this user may have: the copy only waits more often
            fcntl.fcntl(writing, fcntl.F_SETPIPE_SZ, _PIPE_BYTES)
        with warnings.catch_warnings():
            # Python warns of the threads of numerical libraries, which a copy does not use.
            warnings.simplefilter("ignore", DeprecationWarning)
            self._pid = os.fork()
        if self._pid == 0:
            os.close(reading)
            _compute(function, items, writing)
        os.close(writing)
        self._results: BinaryIO = os.fdopen(reading, "rb")

    def next(self) -> tuple[R] | None:
        """The result of the next item; None if it failed, or if the copy was killed."""
        try:
            answer: tuple[R] | None = pickle.load(self._results)  # noqa: S301
        except (EOFError, pickle.UnpicklingError):
            return None
        return answer

    def end(self) -> None:
        self._results.close()
        os.kill(self._pid, signal.SIGKILL)  # it may have ended already: it is a zombie until the next line
        os.waitpid(self._pid, 0)


def _compute(function: Callable[[T], object], items: Sequence[T], writing: int) -> None:
    """In the copy: never returns. A copy whose parent has died ends at its next result."""
    try:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        with os.fdopen(writing, "wb") as results:
            for item in items:
                try:
                    answer = pickle.dumps((function(item),), protocol=pickle.HIGHEST_PROTOCOL)
                except Exception:
                    answer = pickle.dumps(None)
                results.write(answer)
                results.flush()
    finally:
        os._exit(0)
