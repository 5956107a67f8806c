"""What a run's terminal showed, kept in ``logs/job.log``: the log that ``rankup logs`` prints and follows."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

from rankup.core.rundir import RunDir
from rankup.run.job import View


@contextlib.contextmanager
def recorded(view: View, run: RunDir | None) -> Iterator[View]:
    """``view``, and what it is shown is kept in ``run``. A log that cannot be written is given up: the run goes on."""
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
