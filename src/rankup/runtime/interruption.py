"""An end put to a run at a chosen point: how ``rankup verify`` interrupts it. Off unless ``RANKUP_INTERRUPT`` is set.

| value | what this does |
|---|---|
| ``step N RANK`` | freeze after the Nth step of this attempt, before it is saved |
| ``moment N RANK SECONDS`` | freeze so long after the Nth step of this attempt, wherever the process is then |
| ``save N RANK`` | freeze before the Nth change that this attempt's saves make on disk |
| ``stop N RANK`` | ask the run to stop after step N, counted from the first attempt |

Several are separated by semicolons. A frozen process (SIGSTOP) has noted so in the trace's directory and waits to be
killed with all the others: so the kill falls where it was meant to, and nothing of the run gets a last word.
"""

from __future__ import annotations

import os
import signal
import threading
from pathlib import Path

from rankup.runtime import stop
from rankup.snapshots import disk

VARIABLE = "RANKUP_INTERRUPT"
FROZEN = "frozen"  # the file in the trace's directory


class Interruption:
    """Of one attempt, on this rank; ``step`` is called after each step."""

    def __init__(self, value: str, rank: int, folder: Path) -> None:
        self._folder = folder
        self._steps = 0
        self._changes = 0
        parts = [words for part in value.split(";") if (words := part.split())]
        self._plan = [
            (kind, int(at), float(rest[0]) if rest else 0.0)
            for kind, at, who, *rest in parts
            if int(who) == rank
        ]
        if any(kind == "stop" for kind, *_ in parts):
            stop.AGREE_EVERY_S = 0.0  # at every step, so that the step is the one that was meant
        if any(kind == "save" for kind, *_ in self._plan):
            disk.before = self._disk_changes

    def step(self, steps_done: int) -> None:
        self._steps += 1
        for kind, at, seconds in self._plan:
            if kind == "stop" and steps_done >= at:
                os.kill(os.getpid(), signal.SIGTERM)  # heard as a request: it needs no run directory
            elif kind == "step" and self._steps == at:
                self._freeze()
            elif kind == "moment" and self._steps == at:
                timer = threading.Timer(seconds, self._freeze)
                timer.daemon = True
                timer.start()

    def _disk_changes(self, what: str, path: Path) -> None:
        self._changes += 1
        if any(kind == "save" and self._changes == at for kind, at, _ in self._plan):
            self._freeze()

    def _freeze(self) -> None:
        (self._folder / FROZEN).touch()
        os.kill(os.getpid(), signal.SIGSTOP)
