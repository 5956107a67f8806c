"""Whether somebody else uses a rank's cores: a short loop on them, and how long it had to wait.

The ranks of the node take turns, so that they do not disturb each other: which cores they share is known from their
masks. A rank that was slow gets more turns, and the best counts: a busy moment passes, but a process that is pinned to
a core disturbs every turn.
"""

from __future__ import annotations

import contextlib
import math
import os
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import psutil

from rankup.doctor.plan import Plan
from rankup.doctor.tasks import node_ranks

_TURNS = 18
_WORK = 0.02  # seconds of processor time of a turn
_SLOW = 1.3
_LONGEST = 1.5  # seconds for all ranks of the node


def probe(plan: Plan, node: int) -> dict[str, Any]:
    """For each rank ``slowdown``: elapsed over processor time, 1 for a core of its own; and who else is busy there."""
    ranks = node_ranks(plan, node)
    before = _processor_times()
    mine = os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else set()
    best: dict[int, float] = {}
    slow = ranks if mine else []
    deadline = time.monotonic() + _LONGEST
    try:
        for _ in range(_TURNS):
            for one in slow:
                if time.monotonic() < deadline:
                    best[one["rank"]] = min(best.get(one["rank"], math.inf), _slowdown(one["affinity"], mine))
            slow = [one for one in slow if best.get(one["rank"], 0) > _SLOW]
    finally:
        with contextlib.suppress(OSError):
            os.sched_setaffinity(0, mine)
    found = [{"rank": rank, "slowdown": round(slowdown, 2)} for rank, slowdown in best.items()]
    return {"ranks": found, "busy": _busy(before) if slow else [], "hidden": _processes_are_hidden()}


def _slowdown(affinity: Sequence[int], mine: set[int]) -> float:
    with contextlib.suppress(OSError, ValueError):
        os.sched_setaffinity(0, set(affinity) or mine)
    began, cpu = time.perf_counter(), time.thread_time()
    while time.thread_time() - cpu < _WORK:
        for _ in range(2000):
            pass
    return (time.perf_counter() - began) / (time.thread_time() - cpu)


def _processor_times() -> dict[int, tuple[float, float]]:
    """Process id → when, and the processor time that it had used by then."""
    found = {}
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            times = process.cpu_times()
            found[process.pid] = (time.monotonic(), times.user + times.system)
    return found


def _processes_are_hidden() -> bool:
    """Whether /proc shows a user nothing of the other users' processes (proc(5), ``hidepid``)."""
    try:
        mounts = [line.split() for line in Path("/proc/self/mounts").read_text().splitlines()]
    except OSError:
        return False
    options = next((one[3].split(",") for one in reversed(mounts) if one[1] == "/proc"), [])
    return any(one.startswith("hidepid=") and one not in ("hidepid=0", "hidepid=off") for one in options)


def _busy(before: dict[int, tuple[float, float]]) -> list[dict[str, Any]]:
    """Other processes that have used more than a tenth of a core meanwhile, with the core that they are on."""
    found = []
    for pid, (now, used) in _processor_times().items():
        then, had = before.get(pid, (0.0, used))
        if pid == os.getpid() or now - then < 0.05 or (used - had) / (now - then) < 0.1:
            continue
        with contextlib.suppress(psutil.Error, AttributeError):
            process = psutil.Process(pid)
            found.append({"pid": pid, "name": process.name(), "cpu": process.cpu_num()})
    return found[:8]
