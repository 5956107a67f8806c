"""Forked loader workers that are known to have started.

In Python 3.10 before 3.10.15 and 3.11 before 3.11.10 a forked process may wait for ever before its first line: a thread
of the parent held the interpreter's list of threads when it was forked (gh-112275). Threads of gloo and NCCL enter
Python at any time, so a rank that forks loader workers meets this now and then, and trains no further. Here each worker
reports its start, and one that does not is replaced: it has done nothing yet.
"""

from __future__ import annotations

import multiprocessing
import os
import select
import signal
import sys
from multiprocessing import context, popen_fork
from multiprocessing.process import BaseProcess
from typing import Any

WAIT_S = 10.0  # for a worker's first line, which takes milliseconds
ATTEMPTS = 3  # the last worker is kept in any case: the machine may be that slow


def fork_may_deadlock(version: tuple[int, ...] = sys.version_info[:3]) -> bool:
    """Whether this version of Python has the defect gh-112275."""
    return version < (3, 10, 15) or (3, 11) <= version < (3, 11, 10)


def checked(given: Any) -> Any:
    """``multiprocessing_context=`` of a DataLoader with workers: a checked one if it forks and forks may deadlock."""
    if not fork_may_deadlock():
        return given
    method: Any = given if isinstance(given, str) else getattr(given, "_name", None)
    if given is None:
        method = (
            multiprocessing.get_start_method(allow_none=True) or multiprocessing.get_all_start_methods()[0]
        )
    return CheckedForkContext() if method == "fork" else given


class _Popen(popen_fork.Popen):
    """Forks until a child has reported its start."""

    def _launch(self, process_obj: Any) -> None:
        for attempt in range(ATTEMPTS):
            if self._launch_once(process_obj) or attempt == ATTEMPTS - 1:
                return
            os.kill(self.pid, signal.SIGKILL)
            os.waitpid(self.pid, 0)
            self.close()

    def _launch_once(self, process_obj: Any) -> bool:
        """Whether the child has started, or has ended."""
        reading, writing = os.pipe()
        bootstrap = process_obj._bootstrap

        def report_and_work(**arguments: Any) -> Any:
            os.write(writing, b"1")
            os.close(reading)
            os.close(writing)
            return bootstrap(**arguments)

        process_obj._bootstrap = report_and_work
        try:
            super()._launch(process_obj)  # type: ignore[misc]
            os.close(writing)
            return bool(select.select([reading], [], [], WAIT_S)[0])
        finally:
            del process_obj._bootstrap
            os.close(reading)


class _Process(context.ForkProcess):
    @staticmethod
    def _Popen(process_obj: BaseProcess) -> _Popen:
        return _Popen(process_obj)


class CheckedForkContext(context.ForkContext):
    """multiprocessing's ``fork``, with processes that have reported their start."""

    Process = _Process
