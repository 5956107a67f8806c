"""Finds and kills every process of a run, also those that their parents forgot (data-loader workers)."""

from __future__ import annotations

import os
import secrets
import time
from collections.abc import Mapping

import psutil

# Every process inherits its parent's environment, also if it is adopted or in another session: so the mark
# finds orphans that a walk through children, process groups or sessions would miss.
MARK = "RANKUP_MARK"


def new_process_mark(env: Mapping[str, str]) -> str:
    """A mark for one ``execute``; that of a run inside a run begins with the outer one's."""
    return f"{env.get(MARK, '')}/{secrets.token_hex(8)}"


def kill_processes(mark: str) -> None:
    """SIGKILL to every process that carries ``mark``; returns once they are gone."""
    found = [process for process in psutil.process_iter() if _carries(process, mark)]
    for process in found:
        try:
            process.kill()
        except psutil.NoSuchProcess:
            continue
    # Not psutil's own wait: it would reap a child of ours and take the exit code that its owner waits for.
    deadline = time.monotonic() + 2
    while any(_alive(process) for process in found) and time.monotonic() < deadline:
        time.sleep(0.01)


def _alive(process: psutil.Process) -> bool:
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def _carries(process: psutil.Process, mark: str) -> bool:
    if process.pid == os.getpid():
        return False
    try:
        return process.environ().get(MARK, "").startswith(mark)
    except (psutil.Error, OSError):
        return False  # not ours to look at, or gone
