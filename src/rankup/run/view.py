"""Who looks on while a job runs; what is shown is also kept in ``logs/job.log``, which ``rankup logs`` prints."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Protocol

from rankup.core.rundir import RunDir


class View(Protocol):
    """Who looks on while a job runs; called from the thread that called ``execute``."""

    def line(self, rank: int | None, stream: str, text: str) -> None:
        """A line without its end; ``stream`` is "out" or "err".

        Rank None: there is no rank to tell apart. The only process of a job speaks, or rankup, or a launcher.
        """

    def tick(self, run: RunDir) -> None:
        """Called about ten times a second while the processes run."""


class SilentView:
    """A view that shows nothing; the logs keep everything."""

    def line(self, rank: int | None, stream: str, text: str) -> None:
        pass

    def tick(self, run: RunDir) -> None:
        pass


@contextlib.contextmanager
def recorded(view: View, run: RunDir | None) -> Iterator[View]:
    """``view``, and what it is shown is kept in ``run``, unless the log there cannot be written."""
    log = open_log(run.logs) if run is not None else None
    if log is None:
        yield view
        return
    try:
        yield _Recorded(view, log)
    finally:
        os.close(log)


def open_log(logs: Path) -> int | None:
    """A descriptor to append to the log with, None where there can be none."""
    try:
        return os.open(logs / "job.log", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    except OSError:
        return None


class _Recorded:
    def __init__(self, view: View, log: int) -> None:
        self._view, self._log = view, log

    def line(self, rank: int | None, stream: str, text: str) -> None:
        self._view.line(rank, stream, text)
        label = "" if rank is None else f"[rank {rank}] "
        with contextlib.suppress(OSError):
            os.write(self._log, f"{label}{text}\n".encode(errors="replace"))

    def tick(self, run: RunDir) -> None:
        self._view.tick(run)
