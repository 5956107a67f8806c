"""The failures of ``rankup drill`` that have to happen inside a job's processes. Off unless ``RANKUP_DRILL`` is set.

| value | what this does |
|---|---|
| ``pace N RANK`` | after step N, wait after each step for as many seconds as the file ``pace`` above the trace says |
| ``die N RANK`` | end by SIGKILL after step N |
| ``node N RANK`` | after step N, end all processes of this attempt on this machine by SIGKILL |
| ``full N RANK`` | for a while after step N, no file that is opened for writing can grow beyond 512 bytes |

RANK may be ``*``. Several are separated by semicolons. The kernel enforces the last one (RLIMIT_FSIZE): so a file is
cut in the middle, as on a full disk; the error is EFBIG and not ENOSPC. A failure that has happened leaves a file of
its name in the trace's directory.
"""

from __future__ import annotations

import functools
import os
import signal
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import torch

VARIABLE = "RANKUP_DRILL"
PACE = "pace"
_MARK = "RANKUP_TRACE"
_FULL_S = 20.0  # from the first file that was cut on
_FULL_BYTES = 512


class DrillFaults:
    """Of one attempt, on this rank. ``record_follows`` is called before a step is recorded, ``step`` after that."""

    def __init__(self, rank: int, folder: Path) -> None:
        self._folder = folder
        parts = [part.split() for part in os.environ.get(VARIABLE, "").split(";") if part]
        self._plan = [(kind, int(at)) for kind, at, who in parts if who in ("*", str(rank))]
        self._space_ends: float | None = None  # no space until then; inf: until a file was cut
        self._listening = False

    def record_follows(self) -> None:
        if self._space_ends is not None:
            _limit_files(None)

    def step(self, done: int) -> None:
        """``done`` steps are trained, over all attempts."""
        for kind, at in self._plan:
            if done >= at:
                getattr(self, f"_{kind}")()

    def _pace(self) -> None:
        began = time.monotonic()
        while time.monotonic() - began < self._seconds():
            time.sleep(0.1)

    def _seconds(self) -> float:
        """The file may change, and goes when the failure has happened."""
        with suppress(OSError, ValueError):
            return float((self._folder.parent / PACE).read_text())
        return 0.0

    def _die(self) -> None:
        if self._first("die"):
            os.kill(os.getpid(), signal.SIGKILL)

    def _node(self) -> None:
        if not self._first("node"):
            return
        mark = f"{_MARK}={self._folder}\0".encode()
        for path in Path("/proc").glob("[0-9]*/environ"):
            with suppress(OSError, ValueError):
                if mark in path.read_bytes() + b"\0" and int(path.parent.name) != os.getpid():
                    os.kill(int(path.parent.name), signal.SIGKILL)
        os.kill(os.getpid(), signal.SIGKILL)

    def _full(self) -> None:
        now = time.monotonic()
        if self._space_ends is None:
            self._space_ends = float("inf")
            if not self._listening:
                self._listening = True
                sys.addaudithook(self._hear)
                torch.save = self._in_vain(torch.save)  # it opens files without Python
        elif now > self._space_ends:
            self._plan = [part for part in self._plan if part[0] != "full"]
            self._space_ends = None

    def _hear(self, event: str, values: tuple[Any, ...]) -> None:
        if event == "open" and self._space_ends is not None and isinstance(values[2], int):
            writes = values[2] & (os.O_WRONLY | os.O_RDWR) and not values[2] & os.O_APPEND
            if writes and not str(values[0]).startswith((str(self._folder), "/dev/", "/proc/")):
                self._cut()

    def _in_vain(self, save: Any) -> Any:
        @functools.wraps(save)
        def wrapped(*args: Any, **options: Any) -> Any:
            if self._space_ends is not None:
                self._cut()
            return save(*args, **options)

        return wrapped

    def _cut(self) -> None:
        if self._space_ends == float("inf"):
            self._space_ends = time.monotonic() + _FULL_S
            self._first("full")
        _limit_files(_FULL_BYTES)

    def _first(self, name: str) -> bool:
        """Whether no process of this attempt has done it before."""
        with suppress(FileExistsError):
            os.close(os.open(self._folder / name, os.O_CREAT | os.O_EXCL, 0o600))
            return True
        return False


def _limit_files(size: int | None) -> None:
    """Python ignores the signal of a file that is too large, and raises OSError."""
    import resource  # not on Windows

    _, most = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (most if size is None else size, most))
