"""Ends the processes of an attempt: at once when one of them has frozen, or as a scheduler does, by a signal first."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil

from rankup.core.records import read_records
from rankup.core.rundir import RunDir

# torchrun's and SLURM's time between a signal and SIGKILL; the tests have a shorter one.
GRACE_VARIABLE, GRACE = "RANKUP_VERIFY_GRACE", 30.0


class Killer:
    """A view that shows nothing, and calls ``ticked``. When a process of the attempt has frozen, or after ``limit``
    seconds, it sends SIGKILL to all of them. If the process has frozen for a signal, all get this signal and go on;
    SIGKILL follows after ``GRACE`` seconds, or when a process freezes again."""

    def __init__(
        self, frozen: Path, limit: float | None = None, ticked: Callable[[], None] = lambda: None
    ) -> None:
        self._ticked = ticked
        self._frozen = frozen
        self._ends = None if limit is None else time.monotonic() + limit
        self._patience: float | None = None  # after a signal
        self.signal = 0  # that was sent
        self.killed = False  # also if it was ``late``
        self.late = False
        self.outlived = False  # it did not end within ``GRACE``

    def line(self, rank: int | None, stream: str, text: str) -> None:
        pass

    def tick(self, run: RunDir) -> None:
        self._ticked()
        now = time.monotonic()
        self.late = self.late or (self._ends is not None and not self.killed and now > self._ends)
        self.outlived = not self.killed and self._patience is not None and now > self._patience
        if self.killed or not (self.late or self.outlived or self._frozen.exists()):
            return
        number = 0 if self.late or self.outlived else _signal(self._frozen)
        if number and not self.signal:
            self.signal = number
            self._frozen.unlink()
            for pid in _processes(run):
                _send(os.kill, pid, number)
            for group in _groups(run):
                _send(os.killpg, group, signal.SIGCONT)
            self._patience = time.monotonic() + float(os.environ.get(GRACE_VARIABLE, GRACE))
            return
        self.killed = True
        for group in _groups(run):
            _send(os.killpg, group, signal.SIGKILL)


def how_it_ended(run: RunDir, killer: Killer, *, at_end: bool) -> str:
    """In words: what an attempt did after a signal. ``at_end``: its training was done."""
    name = signal.Signals(killer.signal).name
    codes = [event["code"] for event in read_records(run.logs / "events.jsonl") if event["event"] == "exit"]
    if killer.outlived:
        return f"did not end within {float(os.environ.get(GRACE_VARIABLE, GRACE)):g} s of {name}: killed"
    if killer.killed:
        return f"went on after {name}: killed"
    if -killer.signal in codes:
        return f"does not handle {name}: ended by it"
    code = next((code for code in codes if code), 0)
    if at_end and not code:
        return f"went on to its end after {name}"
    return f"handled {name}: ended by itself" + (f" with code {code}" if code else "")


def _signal(frozen: Path) -> int:
    """The signal that a frozen process waits for; 0 if it waits for SIGKILL."""
    kind, _, number = frozen.read_text().strip().partition(" ")
    return int(number) if kind == "signal" else 0


def _send(send: Callable[[int, int], None], to: int, number: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        send(to, number)


def _groups(run: RunDir) -> list[int]:
    """The process groups of the ranks. Each rank has its own group, with its loader workers."""
    events = read_records(run.logs / "events.jsonl")
    return [event["pid"] for event in events if event["event"] == "start"]


def _processes(run: RunDir) -> Iterator[int]:
    """All processes of the groups but the first of each, which is rankup's own (``run/rank.py``)."""
    groups = {*_groups(run)}
    for pid in psutil.pids():
        with contextlib.suppress(ProcessLookupError):
            if pid not in groups and os.getpgid(pid) in groups:
                yield pid
