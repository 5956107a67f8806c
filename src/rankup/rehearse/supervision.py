"""Starts a command and ends it with all that it has started: at its end, in time, or when there are too many."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from rankup.rehearse.system_calls import PR_SET_CHILD_SUBREAPER, Libc

# Seconds in which nothing that is left computes: on a busy machine what starts takes longer. And at most so many.
_LAST_LOOK, _LONGEST_LOOK = 1.5, 20.0
_MOMENT = 0.2  # seconds in which a process ends that the script has sent a signal


def main_unconfined(plan_file: str) -> int:
    """Run the plan without a sandbox. Only what it has started is ended with it."""
    plan: dict[str, Any] = json.loads(Path(plan_file).read_text())
    with contextlib.suppress(OSError, AttributeError):
        Libc().call("prctl", PR_SET_CHILD_SUBREAPER, 1)
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, lambda *_: sys.exit(1))
    try:
        result = watch(plan, lambda: None)
    finally:
        _endall_processes(confined=False)
    left_out = plan["left_out"]
    Path(plan["scratch"], "result.json").write_text(
        json.dumps({"overlaid": False, "changed": [], "left_out": left_out, **result})
    )
    return 0


def watch(plan: dict[str, Any], in_child: Callable[[], None]) -> dict[str, Any]:
    """Start the command, adopt orphans, and end everything when it ends or must end."""
    confined = plan["confined"]
    log = Path(plan["log"])
    for name, instead in plan["instead"].items():  # nothing could be written there
        if not Path(name).exists():
            plan["argv"] = [instead if word == name else word for word in plan["argv"]]
            plan["env"] = {key: instead if value == name else value for key, value in plan["env"].items()}
    child = os.fork()
    if not child:
        try:
            os.setsid()
            in_child()
            os.chdir(plan["cwd"])
            out = os.open(plan["output"], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
            null = os.open(os.devnull, os.O_RDONLY)
            os.dup2(null, 0)
            os.dup2(out, 1)
            os.dup2(out, 2)
            for each in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGPIPE, signal.SIGQUIT):
                signal.signal(each, signal.SIG_DFL)
            os.execve(plan["argv"][0], plan["argv"], plan["env"])
        except OSError as error:
            os.write(2, f"{plan['argv'][0]}: {error.strerror}\n".encode())
        os._exit(127)
    deadline = time.monotonic() + plan["seconds"]
    result: dict[str, Any] = {"code": None, "ended_by": "timeout"}
    looked = 0.0
    while (now := time.monotonic()) < deadline:
        done, status = _reap()
        if done == child:
            result = {"code": os.waitstatus_to_exitcode(status), "ended_by": "itself"}
            break
        if now > looked + 0.05:
            looked = now
            if len(all_processes(confined)) > plan["most_processes"]:
                result = {"code": None, "ended_by": "processes"}
                break
        if done <= 0:
            time.sleep(0.01)
    moment = time.monotonic() + _MOMENT
    while (left := all_processes(confined)) and result["ended_by"] == "itself" and time.monotonic() < moment:
        _reap()
        time.sleep(0.01)
    with log.open("a") as file:
        file.write(json.dumps({"kind": "script-end", "time": time.time(), "left": left, **result}) + "\n")
    # What the script has left in the background is ended with it. Here it may first be seen starting something.
    for process in all_processes(confined) if plan["grace"] else ():
        with contextlib.suppress(OSError):
            os.kill(process, signal.SIGTERM)
    look, most = plan["grace"] or _LAST_LOOK, plan["grace"] or _LONGEST_LOOK
    quiet, longest = time.monotonic() + look, time.monotonic() + most
    while result["ended_by"] == "itself" and (left := all_processes(confined)) and time.monotonic() < quiet:
        if _reap()[0] < 0:
            break
        if any(map(_computes, left)):
            quiet = min(time.monotonic() + look, longest)
        time.sleep(0.01)
    _endall_processes(confined)
    return result


def _endall_processes(confined: bool) -> None:
    while True:  # a SIGKILL to all leaves nobody who could fork; then there is only to reap
        with contextlib.suppress(OSError):
            if confined:
                os.kill(-1, signal.SIGKILL)
        for process in [] if confined else all_processes(confined):
            with contextlib.suppress(OSError):
                os.kill(process, signal.SIGKILL)
        done, _ = _reap()
        while done > 0:
            done, _ = _reap()
        if done < 0:
            return
        time.sleep(0.005)


def _computes(process: int) -> bool:
    """Whether it has, or waits for, a CPU or a disk."""
    try:
        state = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0]
    except (OSError, IndexError):
        return False
    return state in "RD"


def all_processes(confined: bool) -> list[int]:
    """All processes but this one: of the namespace, or else those that this one has started, or adopted."""
    if confined:
        return [int(name) for name in os.listdir("/proc") if name.isdigit() and name != "1"]  # noqa: PTH208
    return descendants(os.getpid())


def descendants(process: int) -> list[int]:
    """Its children, in the order of their starts, then theirs."""
    found: list[int] = []
    todo = [process]
    while todo:
        with contextlib.suppress(OSError):  # it has ended
            for tasks in Path(f"/proc/{todo.pop(0)}/task").glob("*/children"):
                children = [int(word) for word in tasks.read_text().split()]
                found += children
                todo += children
    return found


def _reap() -> tuple[int, int]:
    """(process, status) of one that has ended; 0: none yet; -1: there are no children."""
    try:
        return os.waitpid(-1, os.WNOHANG)
    except ChildProcessError:
        return -1, 0
