"""Interrupts a run at a chosen point, for ``rankup verify``. Off unless ``RANKUP_INTERRUPT`` is set. The failures of
``rankup drill`` happen at the same points (``drill_faults.py``).

| value | what this does |
|---|---|
| ``step N RANK`` | freeze after step N, before it is saved |
| ``moment N RANK SECONDS`` | freeze so many seconds after step N, at any point of the code |
| ``behind N RANK`` | freeze when the code after an epoch that ended with step N has run |
| ``evaluation N RANK BATCH`` | freeze after so many batches of evaluations that began after step N |
| ``exit N RANK`` | freeze when the script has ended, after N steps or more |
| ``save N RANK`` | freeze before the Nth change that this attempt's saves make on disk |
| ``stop N RANK`` | ask the run to stop after step N |
| ``signal N RANK NUMBER`` | freeze after step N, until verify has sent this signal to all processes |
| ``epoch N RANK`` | any script: freeze when its loader is exhausted, after step N |
| ``writing N RANK K`` | any script: freeze when half of its Kth file after step N is written |
| ``between N RANK K`` | any script: freeze before the Kth change on disk after step N, of those that a save makes |
| ``saves N RANK`` | any script: freeze three steps after its Nth step that was followed by a save |

Steps count from the first attempt on; if the point has passed already, the next one of its kind counts. Several are
separated by semicolons. A frozen process (SIGSTOP) has written a file into the trace's directory, and is then killed
together with all others: so the kill happens exactly at this point, and no process runs code after it. For ``step``,
``behind`` and ``evaluation`` it first waits until the save in flight is durable, so that a resume is the same each
time."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable
from pathlib import Path

from rankup.core.files import write_atomic
from rankup.runtime.checkpointing import stop
from rankup.runtime.tracing.drill_faults import DrillFaults
from rankup.runtime.tracing.saves import SAVES
from rankup.snapshots import disk

VARIABLE = "RANKUP_INTERRUPT"
FROZEN = "frozen"  # the file in the trace's directory; it holds the kind
_AFTER_A_SAVE = 3  # steps: a kill two steps after it fits in


class FaultInjection:
    """Of one attempt, on this rank; ``step`` is called after each step is recorded."""

    def __init__(
        self, value: str, rank: int, folder: Path, before_freezing: Callable[[], None] = lambda: None
    ) -> None:
        self._folder = folder
        self._drill = DrillFaults(rank, folder)
        self.record_follows = self._drill.record_follows  # to be called before a step is recorded
        self.before_freezing = before_freezing
        self._changes = 0
        self._evaluated, self._evaluated_at = 0, -1
        self._saved = 0
        parts = [words for part in value.split(";") if (words := part.split())]
        self._plan = [
            (kind, int(at), float(rest[0]) if rest else 0.0)
            for kind, at, who, *rest in parts
            if int(who) == rank
        ]
        if any(kind == "stop" for kind, *_ in parts):
            stop.AGREE_EVERY_S = 0.0  # at every step, so that the run stops at the chosen one
        if any(kind == "save" for kind, *_ in self._plan):
            disk.before = self._disk_changes

    def step(self, done: int) -> None:
        """``done`` steps are trained, over all attempts."""
        for part in list(self._plan):
            kind, at, seconds = part
            if done < at:
                continue
            if kind == "stop":
                os.kill(os.getpid(), signal.SIGTERM)  # heard as a request: it needs no run directory
            elif kind == "step":
                self._freeze(kind)
            elif kind == "signal":
                self._plan.remove(part)
                self._freeze(f"{kind} {int(seconds)}")
            elif kind == "writing":
                SAVES.interrupt(int(seconds), lambda: self._freeze("writing"))
            elif kind == "between":
                SAVES.stop_before(int(seconds), lambda: self._freeze("between"))
            elif kind == "moment":
                self._plan.remove(part)
                timer = threading.Timer(seconds, self._freeze, (kind,))
                timer.daemon = True
                timer.start()
        self._drill.step(done)

    def saved(self, done: int) -> None:
        """Before ``step``: the script has saved since the step before."""
        self._saved += 1
        for part in self._plan:
            if part[0] == "saves" and self._saved == part[1]:
                self._plan[self._plan.index(part)] = ("step", done - 1 + _AFTER_A_SAVE, 0.0)

    def reached(self, kind: str, done: int) -> None:
        """A point of one of the kinds ``epoch``, ``behind`` and ``exit``, after ``done`` steps."""
        if any(each == kind and done >= at for each, at, _ in self._plan):
            self._freeze(kind)

    def evaluation(self, done: int) -> None:
        if done != self._evaluated_at:
            self._evaluated, self._evaluated_at = 0, done
        self._evaluated += 1
        if any(kind == "evaluation" and done >= at and self._evaluated >= n for kind, at, n in self._plan):
            self._freeze("evaluation")

    def _disk_changes(self, what: str, path: Path) -> None:
        self._changes += 1
        if any(kind == "save" and self._changes == at for kind, at, _ in self._plan):
            self._freeze("save")

    def _freeze(self, kind: str) -> None:
        if kind not in ("save", "moment", "exit", "writing", "between"):
            self.before_freezing()
        write_atomic(self._folder / FROZEN, kind)
        os.kill(os.getpid(), signal.SIGSTOP)
