"""What stands between the launcher and one rank's command; run by path, with nothing but the standard library.

    python -I -S rank.py LOGS EVENTS COMMAND…

It sends the command's output to ``LOGS/rank-R.out`` and ``LOGS/rank-R.err``, appends a line to ``EVENTS`` when the
command starts and when it ends, and ends as the command ended. Why it exists: only a parent knows when and how
exactly a rank died, and "who failed first" is what the user wants to know; torchrun looks ten times a second and
keeps whole seconds. It also has the kernel kill the command when the launcher dies.
"""

from __future__ import annotations

import ctypes
import json
import os
import signal
import sys
import time

FORWARDED = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def main(logs: str, events: str, command: list[str]) -> None:
    rank = int(os.environ.get("RANK", "0"))
    for fd, ending in ((1, "out"), (2, "err")):
        log = os.open(f"{logs}/rank-{rank}.{ending}", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        os.dup2(log, fd)
        os.close(log)

    def note(event: str, **fields: object) -> None:
        line = {"event": event, "rank": rank, "time": time.time(), **fields}
        # One write in append mode: the lines of this node's ranks do not mix.
        file = os.open(events, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        os.write(file, json.dumps(line).encode() + b"\n")
        os.close(file)

    die_with_parent()
    # Signals come to the whole process group, so the command has them too; here they only must not end the wait.
    # A handler, since SIG_IGN would be inherited across exec.
    for signum in FORWARDED:
        signal.signal(signum, lambda *_: None)
    note("start", pid=os.getpid(), restarts=int(os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")))
    pid = os.fork()
    if pid == 0:
        execute(command)
    _, status = os.waitpid(pid, 0)
    code = os.waitstatus_to_exitcode(status)
    note("exit", code=code)
    if code < 0:
        end_by_signal(-code)
    os._exit(code)


def execute(command: list[str]) -> None:
    die_with_parent()
    try:
        os.execvp(command[0], command)
    except OSError as error:
        os.write(2, f"{command[0]}: {error.strerror}\n".encode())
        os._exit(127)


def die_with_parent() -> None:
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG


def end_by_signal(signum: int) -> None:
    import resource

    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # the command has left its own core file
    if signum != signal.SIGKILL:
        signal.signal(signum, signal.SIG_DFL)
    os.kill(os.getpid(), signum)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], sys.argv[3:])
