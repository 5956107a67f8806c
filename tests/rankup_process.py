"""``rankup run`` as its users start it: a process of its own, its output and its run directory at hand."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Sequence
from pathlib import Path

import psutil

_OWN = ("rankup: ", "continue: ", "explain: ", "no snapshot")


class Started:
    """One ``rankup run`` in ``folder``, started by ``starter``; once it has ended ``out``, ``err``, and ``own``: header
    and end lines."""

    def __init__(
        self, folder: Path, *args: str, env: dict[str, str] | None = None, starter: Sequence[str] = ()
    ):
        self.folder = folder
        self.process = subprocess.Popen(
            [*starter, sys.executable, "-m", "rankup", "run", *args],
            cwd=folder,
            env={**os.environ, **(env or {})},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def end(self, timeout: float = 90) -> Started:
        try:
            self.out, err = self.process.communicate(timeout=timeout)
        finally:
            self.process.kill()
        self.code = self.process.returncode
        lines = err.splitlines(keepends=True)
        self.own = [line.rstrip("\n") for line in lines if line.startswith(_OWN)]
        self.err = "".join(line for line in lines if not line.startswith(_OWN))
        return self

    def wait_for(self, name: str, timeout: float = 240) -> Path:
        """The file ``name`` in the folder, once a script has made it."""
        path, deadline = self.folder / name, time.monotonic() + timeout
        while not path.exists():
            assert self.process.poll() is None, self.process.communicate()
            assert time.monotonic() < deadline, f"{name} was never made"
            time.sleep(0.02)
        return path

    def send(self, signum: signal.Signals) -> None:
        self.process.send_signal(signum)

    @property
    def run_dir(self) -> Path:
        (path,) = (self.folder / "runs").glob("*/*")
        return path

    @property
    def outcome(self) -> dict[str, object]:
        return json.loads((self.run_dir / "outcome.json").read_text())


def script(folder: Path, text: str, name: str = "script.py") -> str:
    (folder / name).write_text(textwrap.dedent(text))
    return name


def processes_mentioning(text: str) -> list[list[str]]:
    """The command lines of all living processes that hold ``text``, but for zombies."""
    found = []
    for process in psutil.process_iter():
        try:
            line = process.cmdline()
        except psutil.Error:
            continue
        if any(text in token for token in line) and process.pid != os.getpid():
            found.append(line)
    return found
