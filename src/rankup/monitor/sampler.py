"""One sample a second into the run's records, until the job ends, whatever ends it."""

from __future__ import annotations

import os
import time

from rankup.monitor.counters import Counters
from rankup.monitor.gpus import Gpus
from rankup.monitor.limits import Limits
from rankup.monitor.samples_file import SamplesFile, Turn, path_for

TICK = 1.0  # seconds


def interval(elapsed: float) -> float:
    """Seconds between samples, so long after the start: a day's file stays as small as the first three hours'."""
    return 1.0 if elapsed < 3600 else 10.0


def sample(folder: str, parent: int) -> None:
    """Sample this node until the process ``parent``, which started this one, is gone, or the run has ended.

    The run has ended if its directory is gone, or its outcome is written. If the records cannot be written, there are
    no samples: a job is worth more than what is known of it.
    """
    host = os.uname().nodename
    outcome = f"{folder}/outcome"
    before = _written(outcome)  # an earlier attempt's, which a network file system may still show
    stacks = f"{folder}/STACKS"
    asked = _written(stacks)
    try:
        turn = Turn(folder, host)
        # Made at once: who deletes the directory a second later does not find a new file in it.
        file = SamplesFile(path_for(folder, host)) if turn.mine() else None
        counters, limits = Counters(), Limits(folder)
        gpus = Gpus(os.environ.get("CUDA_VISIBLE_DEVICES"))
        began = due = time.monotonic()
        while True:
            due = max(due + interval(due - began), time.monotonic())
            if not _parent_lives_until(due, parent) or not os.path.isdir(folder):
                return
            if (now := _written(outcome)) is not None and now != before:
                return
            about = {"kind": "sample", "time": round(time.time(), 3), "host": host}
            about |= {**counters.read(), **limits.read()}
            if not turn.mine():
                continue
            if (request := _written(stacks)) not in (None, asked):
                asked = request
                _answer_with_stacks(folder, host)
            file = file or SamplesFile(path_for(folder, host))
            file.append({**about, "gpus": gpus.read()})
    except OSError:
        return


def _answer_with_stacks(folder: str, host: str) -> None:
    from pathlib import Path

    from rankup.monitor.stacks import answer  # imported only here: it is asked for seldom

    answer(Path(folder), host)


def _parent_lives_until(due: float, parent: int) -> bool:
    """Sleep until ``due``, or until ``parent`` is gone: who adopts this process is another one."""
    while os.getppid() == parent:
        left = due - time.monotonic()
        if left <= 0:
            return True
        time.sleep(min(left, TICK))
    return False


def _written(path: str) -> tuple[int, int] | None:
    """What changes whenever the file is replaced; None if there is no file."""
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_ino, found.st_mtime_ns
