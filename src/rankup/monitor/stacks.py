"""Stacks of all ranks by py-spy, on request: ``STACKS`` in the run directory asks, and each node's sampler answers.

So a login node gets the stacks of every node, without a port. The answers are ``logs/stacks-HOST.txt``.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from rankup.core import shell
from rankup.core.files import write_atomic
from rankup.core.rundir import RUN_DIR_VARIABLE
from rankup.monitor.samples_file import file_name

REQUEST = "STACKS"
_PATIENCE = 20.0  # seconds for one rank
_TAIL = 4096  # bytes, of some ten records


def request(folder: Path) -> float:
    """Ask for stacks; returns when, for ``answers``. Raises OSError if the run directory cannot be written."""
    write_atomic(folder / REQUEST, f"{time.time()}\n", mode=0o600)
    return (folder / REQUEST).stat().st_mtime


def answers(folder: Path, since: float) -> dict[str, str]:
    """Host → the text that its sampler wrote after ``since``."""
    found = {}
    for path in sorted((folder / "logs").glob("stacks-*.txt")):
        try:
            if path.stat().st_mtime >= since:
                found[path.stem.removeprefix("stacks-")] = path.read_text(errors="replace")
        except OSError:
            continue
    return found


def answer(folder: Path, host: str) -> None:
    """Write the stacks of the ranks on this host, as they are now. Raises OSError if it cannot be written."""
    text = "\n".join(_stacks(folder, host)) or f"no rank of the run has told its process on {host}"
    write_atomic(folder / "logs" / f"stacks-{file_name(host)}.txt", text + "\n", mode=0o600)


def _stacks(folder: Path, host: str) -> Iterator[str]:
    spy = _py_spy()
    for rank, pid in ranks_here(folder, host):
        yield f"==== rank {rank}, process {pid} on {host} ===="
        if spy is None:
            yield "py-spy is not installed there: pip install py-spy"
            continue
        # It does not pause the process: a training goes on, and one that is stopped is read too.
        done = shell.run([spy, "dump", "--nonblocking", "--pid", str(pid)], timeout=_PATIENCE)
        yield done.out.rstrip() if done.code == 0 else f"py-spy failed: {(done.err or done.out).strip()}"


def ranks_here(folder: Path, host: str) -> list[tuple[int, int]]:
    """(rank, process id) of the ranks that live on this host; an id that another process has by now is left out."""
    found = []
    for path in (folder / "records").glob("rank-*.jsonl"):
        record = _last_record(path)
        rank, pid = record.get("rank"), record.get("pid")
        if (
            record.get("host") == host
            and isinstance(rank, int)
            and isinstance(pid, int)
            and _of_run(pid, folder)
        ):
            found.append((rank, pid))
    return sorted(found)


def _last_record(path: Path) -> dict[str, object]:
    try:
        with path.open("rb") as file:
            file.seek(max(0, file.seek(0, os.SEEK_END) - _TAIL))
            lines = file.read().splitlines()
    except OSError:
        return {}
    for line in reversed(lines):
        try:
            record = json.loads(line)
        except ValueError:
            continue
        if isinstance(record, dict):
            return record
    return {}


def _of_run(pid: int, folder: Path) -> bool:
    try:
        variables = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except OSError:
        return False
    return f"{RUN_DIR_VARIABLE}={folder}".encode() in variables


def _py_spy() -> str | None:
    """Of the environment that runs this, or on PATH."""
    beside = Path(sys.executable).with_name("py-spy")
    return str(beside) if beside.exists() else shutil.which("py-spy")
