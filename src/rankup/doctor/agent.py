"""``python -m rankup.doctor.agent NODE``: all probes of one node. Prints each part of the facts when it has it.

Every probe has a thread of its own, and the process ends when its time is over, whatever hangs: a file system or a
driver that does not answer is a fact as well, named by the parts that are missing.
"""

from __future__ import annotations

import contextlib
import os
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

from rankup.core.registry import load
from rankup.doctor.contract import Writer
from rankup.doctor.plan import Plan
from rankup.doctor.probes import COMPUTE_PROBES, PROBES, QUIET_PROBES
from rankup.doctor.tasks import forget, node_ranks

Probe = Callable[[Plan, int], dict[str, Any]]


def main() -> None:
    plan, node = Plan.read(os.environ), int(sys.argv[1])
    writer = Writer(plan.tag, node, _write_all)
    deadline = time.monotonic() + plan.window
    begun = _compute(writer, plan, node, deadline) if plan.compute else _examine(writer, plan, node, deadline)
    unfinished = [name for name, thread in begun if thread.is_alive()]
    writer.say("end", {"unfinished": unfinished})
    os._exit(0)  # a thread that hangs in a system call would keep the process


def _examine(writer: Writer, plan: Plan, node: int, deadline: float) -> list[tuple[str, threading.Thread]]:
    writer.say("hello", {"host": os.uname().nodename, "pid": os.getpid()})
    begun = [(name, _begin(writer, plan, node, name, target)) for name, target in PROBES.items()]
    begun.append(("ranks", _thread(lambda: _say_ranks(writer, plan, node))))
    _wait([thread for _, thread in begun], deadline - 1.0)
    for name, target in QUIET_PROBES.items():
        begun.append((name, _begin(writer, plan, node, name, target)))
        _wait([begun[-1][1]], deadline)
    if plan.tasks:
        with contextlib.suppress(OSError):
            forget(Path(plan.tasks))
    return begun


def _compute(writer: Writer, plan: Plan, node: int, deadline: float) -> list[tuple[str, threading.Thread]]:
    begun = [(name, _begin(writer, plan, node, name, target)) for name, target in COMPUTE_PROBES.items()]
    _wait([thread for _, thread in begun], deadline)
    return begun


def _begin(writer: Writer, plan: Plan, node: int, name: str, target: str) -> threading.Thread:
    return _thread(lambda: writer.say(name, _guarded(cast(Probe, load(target)), plan, node)))


def _say_ranks(writer: Writer, plan: Plan, node: int) -> None:
    for facts in node_ranks(plan, node):
        writer.say("rank", facts, rank=facts["rank"])


def _guarded(probe: Probe, plan: Plan, node: int) -> dict[str, Any]:
    try:
        return probe(plan, node)
    except Exception as error:  # a probe of a machine that may be broken in any way: its failure is a fact
        return {"probe_error": f"{type(error).__name__}: {error}"[:300]}


def _thread(body: Callable[[], None]) -> threading.Thread:
    thread = threading.Thread(target=body, daemon=True)
    thread.start()
    return thread


def _wait(threads: list[threading.Thread], deadline: float) -> None:
    for thread in threads:
        thread.join(max(deadline - time.monotonic(), 0))


def _write_all(data: bytes) -> None:
    while data:
        data = data[os.write(1, data) :]


if __name__ == "__main__":
    main()
