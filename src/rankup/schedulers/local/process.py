"""This machine's own sbatch, squeue and scancel, as a program: ``start SCRIPT LOG``, ``status ID…``, ``cancel ID…``,
``interrupt ID…``.

An id is ``PID.START@HOST``: process ids are used again, so the time when it was started (in epoch seconds) belongs to
it, and a run directory may be looked at from another machine.
"""

from __future__ import annotations

import os
import re
import signal
import socket
import sys
import time
from collections.abc import Callable
from pathlib import Path

import psutil

from rankup.core.shell import DEVNULL, start

# Linux counts a process's age in ticks since boot, and the clock may be set a little meanwhile.
_CLOCK_ERROR = 2.0
_ID = re.compile(r"(\d{1,9})\.(\d{1,12})@(\S+)", re.ASCII)
ELSEWHERE = "elsewhere"


def begin(script: Path, log: Path) -> str:
    """Start the script in a session of its own, so that it outlives the shell that called; returns its id."""
    with log.open("ab") as out:
        process = start(["bash", str(script)], stdin=DEVNULL, stdout=out, stderr=out, new_session=True)
    return f"{process.pid}.{int(psutil.Process(process.pid).create_time())}@{socket.gethostname()}"


def find(job: str) -> psutil.Process | None:
    """The job's process, if it still runs."""
    found = _ID.fullmatch(job)
    try:
        process = psutil.Process(int(found[1])) if found else None
        if process is None or _is_ending(process):
            return None
        same = found is not None and abs(process.create_time() - int(found[2])) <= _CLOCK_ERROR
        return process if same else None
    except psutil.Error:
        return None


def _is_ending(process: psutil.Process) -> bool:
    """A process that was killed gives its memory back first, then closes its files, and is a zombie last."""
    return process.status() == psutil.STATUS_ZOMBIE or process.memory_info().vms == 0


def elsewhere(job: str) -> str:
    """The other machine that a job was started on, or ""."""
    found = _ID.fullmatch(job)
    return found[3] if found and found[3] != socket.gethostname() else ""


def status(jobs: list[str]) -> None:
    """A line for each job that runs: its id and its age in seconds, or what other machine knows of it."""
    for job in jobs:
        if host := elsewhere(job):
            print(job, ELSEWHERE, host)
        elif process := find(job):
            print(job, max(int(time.time() - process.create_time()), 0), socket.gethostname())


def cancel(jobs: list[str], end: Callable[[int], None]) -> int:
    """``end`` for the process of each job. Returns the exit code."""
    foreign = [job for job in jobs if elsewhere(job)]
    for job in jobs:
        process = None if job in foreign else find(job)
        if process is not None:
            end(process.pid)
    for job in foreign:
        print(f"{job}: started on {elsewhere(job)}", file=sys.stderr)
    return 1 if foreign else 0


def main(arguments: list[str]) -> int:
    action, *rest = arguments
    if action == "start":
        print(begin(Path(rest[0]), Path(rest[1])))
    elif action == "status":
        status(rest)
    elif action == "interrupt":
        # To that one process: its process group may hold others of the shell that started it.
        return cancel(rest, lambda pid: os.kill(pid, signal.SIGINT))
    else:
        # To the whole session of the job's script, which then ends its ranks.
        return cancel(rest, lambda pid: os.killpg(pid, signal.SIGTERM))
    return 0
