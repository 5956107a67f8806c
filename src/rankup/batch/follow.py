"""Follows a submitted run, its log and its status, to the end of the run, over requeues."""

from __future__ import annotations

import re
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path

from rankup.batch.queue import query_status
from rankup.batch.status import RunStatus
from rankup.batch.store import SubmittedRun
from rankup.core.tail import Tail
from rankup.errors import RankupError
from rankup.run.interrupts import Interrupts
from rankup.schedulers.base import JobState

LOOK_AT_FILES_S = 0.5
# A scheduler serves thousands of people: queries are this far apart, and the interval grows.
ASK_FIRST_S, ASK_LATER_S, ASK_SLOWER = 5.0, 30.0, 1.2
# After `rankup cancel` the end is near: queries are this far apart, for so long.
ASK_CANCELLED_S, CANCELLED_FOR_S = 1.0, 60.0
# How long the last files of a job may take over a network file system after the scheduler calls it ended.
SETTLE_S, LAST_LINES_S = 12.0, 1.0

# The label that launchers put before the lines of a rank.
_OURS = re.compile(r"\[rank (\d+)\] ?")
# srun's own label counts only under srun: any program may print "3: ".
_SRUN = re.compile(r" *(\d+): ?")


class JobLog:
    """The lines of a run's log as they come. ``rank``: only the lines of that rank, without its label."""

    def __init__(self, job: SubmittedRun, *, rank: int | None = None, task: int | None = None) -> None:
        logs = job.logs(task)
        self._tails = {index: Tail(path) for index, path in logs.items()}
        self._several = len(logs) > 1
        self._rank = rank
        self._launcher = job.spec.launcher

    def new(self, *, last: bool = False) -> Iterator[str]:
        """The lines since the last call; with ``last`` also an unfinished one."""
        for index, tail in self._tails.items():
            while lines := tail.rest() if last else tail.read():
                for line in lines:
                    shown = self._chosen(line)
                    if shown is not None:
                        yield f"[task {index}] {shown}" if self._several else shown

    def last(self, lines: int | None) -> Iterable[str]:
        """The last ``lines`` (None: all) of the log so far, also an unfinished line."""
        everything = chain(self.new(), self.new(last=True))
        return everything if lines is None else deque(everything, maxlen=lines)

    def _chosen(self, line: str) -> str | None:
        if self._rank is None:
            return line
        rank, text = split_label(line, self._launcher)
        return text if rank == self._rank else None


@dataclass
class Follower:
    """``show`` gets the lines of the log, ``say`` changes of the status. Tests replace ``pause`` and ``now``."""

    job: SubmittedRun
    log: JobLog
    show: Callable[[str], None]
    say: Callable[[str], None]
    interrupts: Interrupts
    pause: Callable[[float], None] = time.sleep
    now: Callable[[], float] = time.monotonic
    query_status: Callable[[SubmittedRun], RunStatus] = lambda job: query_status([job])[0]
    _said: str = field(default="", init=False)

    def backlog(self, lines: int) -> None:
        """Show the last ``lines`` of the log so far."""
        for line in deque(self.log.new(), maxlen=lines):
            self.show(line)

    def follow(self) -> RunStatus | None:
        """The final status; None if a signal ended the following. The job itself is left alone."""
        interval, ask_at, ended_at, marker = ASK_FIRST_S, self.now(), None, self._marker()
        cancelled_at: float | None = None
        while self.interrupts.first is None:
            for line in self.log.new():
                self.show(line)
            if self._marker() != marker:  # an attempt has just ended: query at once
                marker, ask_at = self._marker(), self.now()
            if cancelled_at is None and self._cancelled():
                cancelled_at = ask_at = self.now()
            if self.now() >= ask_at:
                standing = self._ask()
                near = cancelled_at is not None and self.now() - cancelled_at < CANCELLED_FOR_S
                ask_at = self.now() + (ASK_CANCELLED_S if near else interval)
                interval = min(interval * ASK_SLOWER, ASK_LATER_S)
                if standing is None or not standing.state.ended:
                    ended_at = None
                else:
                    # It may be the end of an attempt only: a requeue, a successor or the exit code may still appear.
                    ended_at = self.now() if ended_at is None else ended_at
                    if standing.settled or self.now() - ended_at >= SETTLE_S:
                        return self._end(standing)
                    ask_at = self.now() + (ASK_CANCELLED_S if near else SETTLE_S / 4)
            self.pause(LOOK_AT_FILES_S)
        return None

    def _ask(self) -> RunStatus | None:
        """None if the scheduler does not answer."""
        try:
            standing = self.query_status(self.job)
        except RankupError as error:
            if error.code == "scheduler-missing":
                raise
            if self.interrupts.first is None:  # a Ctrl-C reaches the scheduler's client as well
                self._tell(f"status unknown: {error.message}; still trying")
            return None
        if not standing.state.ended:
            self._tell(describe(standing))
        return standing

    def _end(self, standing: RunStatus) -> RunStatus:
        self.pause(LAST_LINES_S)
        for line in self.log.new(last=True):
            self.show(line)
        self._tell(describe(standing))
        return standing

    def _tell(self, text: str) -> None:
        if text != self._said:
            self._said = text
            self.say(text)

    def _cancelled(self) -> bool:
        """Whether `rankup cancel` was called for every task."""
        folders = list(self.job.tasks().values()) or [self.job.run.path]
        return all((folder / "CANCELLED").exists() for folder in folders)

    def _marker(self) -> list[tuple[Path, int]]:
        """The files with exit codes, with the time when each was written."""
        folders = [self.job.run.path, *self.job.tasks().values()]
        found = []
        for path in (folder / "exit_code" for folder in folders):
            try:
                found.append((path, path.stat().st_mtime_ns))
            except OSError:  # not there yet, or late
                continue
        return found


def describe(standing: RunStatus) -> str:
    """The status of a run in one line."""
    if standing.state is JobState.RUNNING:
        attempts = 0 if standing.tasks else standing.traces.attempts  # an array's are the sum of its tasks'
        attempt = f", attempt {attempts}" if attempts > 1 else ""
        how = "suspended" if standing.suspended else "running"
        text = f"job {standing.id} is {how}" + (f" on {standing.nodes}" if standing.nodes else "") + attempt
    elif standing.state is JobState.PENDING:
        text = f"job {standing.id} is pending"
    else:
        text = f"job {standing.id} {'is done' if standing.state is JobState.DONE else standing.state.value}"
    return f"{text}: {standing.reason}" if standing.reason else text


def split_label(line: str, launcher: str) -> tuple[int | None, str]:
    """(rank, the line without its label); (None, the line) if it has no label."""
    for pattern in (_OURS, _SRUN) if launcher == "srun" else (_OURS,):
        found = pattern.match(line)
        if found:
            return int(found[1]), line[found.end() :]
    return None, line
