"""What stands between the launcher and one rank's command; run by path, with nothing but the standard library.

    python -I -S rank.py LOGS EVENTS SPARE STARTER COMMAND…

It copies the command's output to ``LOGS/rank-R.out`` and ``LOGS/rank-R.err``, appends a line to ``EVENTS`` when the
command starts and when it ends, and ends as the command ended. Why it exists: only a parent knows when and how
exactly a rank died, and "who failed first" is what the user wants to know; torchrun looks ten times a second and
keeps whole seconds. It also has the kernel kill the command when the launcher dies. The kernel does so for those who
have asked before: if the process ``STARTER``, which started the launcher, has ended, the command is not started.

The command writes to pipes, and not to the files: a disk that is full, or a run directory that is deleted, must not
end a training. What cannot be written goes to files of the same names in the directory ``SPARE``.
"""

from __future__ import annotations

import ctypes
import json
import os
import select
import signal
import sys
import time

FORWARDED = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
# As much as a pipe may hold: a process that the command has left behind may never stop writing.
LAST = 1 << 20


class RankLog:
    """Appends to a file, and to its namesake in ``spare`` once the file is full or gone."""

    def __init__(self, path: str, spare: str) -> None:
        self._paths = [path, os.path.join(spare, os.path.basename(path))]  # noqa: PTH118, PTH119  # no pathlib: slow
        self._file: int | None = None
        self._open()

    def _open(self) -> None:
        if self._file is not None:
            os.close(self._file)
            self._file = None
        while self._paths and self._file is None:
            path = self._paths.pop(0)
            if not self._paths:
                make_folder(os.path.dirname(path))  # noqa: PTH120
            try:
                self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
            except OSError:
                continue

    def write(self, data: bytes, *, whole: bool = False) -> None:
        """``whole``: all of it into one file, in one piece."""
        rest = data
        while rest and self._file is not None:
            try:
                written = 0 if os.fstat(self._file).st_nlink == 0 else os.write(self._file, rest)
            except OSError:
                written = 0
            rest = rest[written:]
            if written == 0 or (whole and rest):
                rest = data if whole else rest
                self._open()


def main(logs: str, events: str, spare: str, starter: int, command: list[str]) -> None:
    rank = int(os.environ.get("RANK", "0"))
    noted = RankLog(events, spare)

    def note(event: str, **fields: object) -> None:
        line = {"event": event, "rank": rank, "time": time.time(), **fields}
        # One write in append mode: the lines of this node's ranks do not mix.
        noted.write(json.dumps(line).encode() + b"\n", whole=True)

    die_with_parent()
    if not lives(starter):
        end_by_signal(signal.SIGKILL)
    # Signals come to the whole process group, so the command has them too; here they only must not end the wait.
    # A handler, since SIG_IGN would be inherited across exec.
    ended, wake = os.pipe()
    os.set_blocking(wake, False)
    signal.set_wakeup_fd(wake)
    for signum in (*FORWARDED, signal.SIGCHLD):
        signal.signal(signum, lambda *_: None)
    note("start", pid=os.getpid(), restarts=int(os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")))
    os.environ.update(srun_names(dict(os.environ)))
    logs_of = [RankLog(f"{logs}/rank-{rank}.{ending}", spare) for ending in ("out", "err")]
    pipes = [os.pipe() for _ in logs_of]
    me = os.getpid()
    pid = os.fork()
    if pid == 0:
        die_with_parent()
        if not lives(me):
            os._exit(128 + signal.SIGKILL)
        for fd, (_, sink) in enumerate(pipes, start=1):
            os.dup2(sink, fd)
        execute(command)
    for _, sink in pipes:
        os.close(sink)
    status = copy_until_end(pid, {source: log for (source, _), log in zip(pipes, logs_of)}, ended)  # noqa: B905
    code = os.waitstatus_to_exitcode(status)
    note("exit", code=code)
    if code < 0:
        end_by_signal(-code)
    os._exit(code)


def make_folder(path: str) -> None:
    try:
        os.mkdir(path, 0o700)  # noqa: PTH102
    except OSError:
        return  # another rank has made it, or there can be none


def copy_until_end(pid: int, logs: dict[int, RankLog], ended: int) -> int:
    """Copy what comes out of the pipes until the process has ended; its status. Who inherited a pipe is not waited
    for. ``ended`` becomes readable with each signal."""
    while True:
        ready, _, _ = select.select([*logs, ended], [], [])
        for source in ready:
            data = os.read(source, 1 << 16)
            if source == ended:
                continue
            if data:
                logs[source].write(data)
            else:
                os.close(source)
                del logs[source]
        found, status = os.waitpid(pid, os.WNOHANG)
        if found:
            break
    for source, log in logs.items():
        os.set_blocking(source, False)
        left = LAST
        try:
            while left > 0 and (data := os.read(source, 1 << 16)):
                log.write(data)
                left -= len(data)
        except BlockingIOError:
            continue
    return status


def srun_names(env: dict[str, str]) -> dict[str, str]:
    """What a script reads that was written for srun. Inside an allocation the variables are there, but tell of the
    agent that torchrun runs in: the same for all ranks of a node."""
    if "TORCHELASTIC_RUN_ID" not in env:
        return {}
    return {
        "SLURM_PROCID": env["RANK"],
        "SLURM_LOCALID": env["LOCAL_RANK"],
        "SLURM_NTASKS": env["WORLD_SIZE"],
        "SLURM_NODEID": env.get("GROUP_RANK", "0"),
        "NODE_RANK": env.get("GROUP_RANK", "0"),
    }


def execute(command: list[str]) -> None:
    try:
        os.execvp(command[0], command)
    except OSError as error:
        os.write(2, f"{command[0]}: {error.strerror}\n".encode())
        os._exit(127)


def die_with_parent() -> None:
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG


def lives(pid: int) -> bool:
    """A zombie does not: nobody has asked yet how it ended."""
    try:
        with open(f"/proc/{pid}/stat") as file:  # noqa: PTH123
            return file.read().rpartition(")")[2].split()[0] not in "ZX"
    except FileNotFoundError:
        return not os.path.exists("/proc/self/stat")  # noqa: PTH110  # not Linux: unknown
    except OSError:
        return True


def end_by_signal(signum: int) -> None:
    import resource

    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # the command has left its own core file
    if signum != signal.SIGKILL:
        signal.signal(signum, signal.SIG_DFL)
    os.kill(os.getpid(), signum)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4]), sys.argv[5:])
