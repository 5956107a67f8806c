"""A program on a terminal of its own, for tests: what it shows there, as lines."""

from __future__ import annotations

import contextlib
import fcntl
import os
import pty
import struct
import subprocess
import termios
from collections.abc import Mapping, Sequence
from pathlib import Path

COLUMNS = 80


def shown_on_terminal(
    command: Sequence[str], folder: Path, env: Mapping[str, str] | None = None, *, typed: str = ""
) -> tuple[int, list[str]]:
    """(exit code, the lines that a terminal of 80 columns is left with). ``typed`` is there from the beginning."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, COLUMNS, 0, 0))
    with subprocess.Popen(
        command,
        cwd=folder,
        env={**os.environ, "TERM": "xterm", **(env or {})},
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
    ) as process:
        os.close(theirs)
        os.write(ours, typed.encode())
        data = b""
        with contextlib.suppress(OSError):  # Linux: the other end is closed
            while chunk := os.read(ours, 65536):
                data += chunk
    os.close(ours)
    return process.returncode, lines_of(data.decode())


def lines_of(text: str) -> list[str]:
    """Each line as it looks at its end: what a carriage return overwrote is gone."""
    lines = []
    for line in text.replace("\r\n", "\n").split("\n"):
        shown = ""
        for part in line.split("\r"):
            shown = part + shown[len(part) :]
        lines.append(shown.rstrip())
    return lines[:-1] if lines[-1] == "" else lines
