"""Starts tasks on hosts, at once, and waits for all of them."""

from __future__ import annotations

import os
import select
import signal
import stat
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from rankup.rehearse.stand_ins.context import GROUP, HOST, Here
from rankup.rehearse.stand_ins.holding import trains, wait_until_quiet

MOST = 1024
_FORWARDED = (signal.SIGTERM, signal.SIGUSR1, signal.SIGUSR2, signal.SIGHUP)


@dataclass(frozen=True)
class Task:
    """One process to start."""

    host: str
    argv: Sequence[str]
    env: Mapping[str, str]
    cwd: Path | str
    label: str = ""


def run_all(
    here: Here,
    tasks: Sequence[Task],
    group: str,
    stdin: str | None,
    ends: Callable[[int, int], None],
    *,
    forwards: bool = False,
) -> int:
    """The worst exit code. ``ends`` is told each task's number and its exit code. ``forwards``: the tasks get the
    signals that this process gets."""
    if len(tasks) > MOST:
        here.note(
            f"{here.name} would start {len(tasks)} processes; a rehearsal starts at most {MOST}",
            "bad-command",
        )
        here.fail(f"{here.name}: too many processes for a rehearsal")
    running = []
    for task in tasks:
        env = {
            "BASH_ENV": str(here.scenario.scratch / "functions.sh"),
            **task.env,
            GROUP: group,
            HOST: task.host,
        }
        env.setdefault("PYTHONPATH", str(here.scenario.scratch / "hook"))
        out: IO[bytes] | None = tempfile.TemporaryFile() if task.label else None  # noqa: SIM115
        with Path(stdin or os.devnull).open("rb") as source:
            running.append(
                (here.start(task.argv, host=task.host, env=env, cwd=task.cwd, stdin=source, stdout=out), out)
            )

    def forward(number: int, _: object) -> None:
        for process, _out in running:
            process.send_signal(number)

    for each in _FORWARDED if forwards else ():
        signal.signal(each, forward)
    worst = 0
    for number, (process, out) in enumerate(running):
        code = process.wait()
        code = 128 - code if code < 0 else code
        if out is not None:
            out.seek(0)
            for line in out.read().splitlines():
                sys.stdout.buffer.write(tasks[number].label.encode() + line + b"\n")
            sys.stdout.flush()
            out.close()
        ends(number, code)
        worst = max(worst, code)
    if here.background and trains(here, group):
        wait_until_quiet(here)
    return worst


def given_input(here: Here) -> str | None:
    """A file with what stands on standard input; None if there is nothing.

    srun, ssh and mpirun read all of it, and it is gone for the script's other commands: a ``while read host; do ssh
    $host …; done`` ends after its first round, here as there.
    """
    try:
        kind = os.fstat(0).st_mode
    except OSError:
        return None
    if not (stat.S_ISREG(kind) or stat.S_ISFIFO(kind)):
        return None
    data = b""
    while True:
        if stat.S_ISFIFO(kind) and not select.select([0], [], [], 0.5)[0]:
            break
        part = os.read(0, 1 << 16)
        data += part
        if not part or len(data) > 1 << 22:
            break
    if not data:
        return None
    with tempfile.NamedTemporaryFile(dir=here.scenario.scratch, prefix="stdin-", delete=False) as file:
        file.write(data)
    sys.stdin = None
    return file.name
