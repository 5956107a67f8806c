"""The only place that starts processes. Commands are lists of tokens; nothing here goes through a shell."""

from __future__ import annotations

import ctypes
import os
import shlex
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import IO, Any

Process = subprocess.Popen
DEVNULL = subprocess.DEVNULL
PIPE = subprocess.PIPE


def quote(tokens: Sequence[str]) -> str:
    """The tokens as one line that any POSIX shell reads back as these tokens."""
    return shlex.join(tokens)


@dataclass(frozen=True)
class Completed:
    """A command that has ended; ``code`` 127 where it could not be found, 124 where it ran out of time."""

    code: int
    out: str
    err: str


def run(
    tokens: Sequence[str],
    *,
    env: Mapping[str, str] | None = None,
    cwd: Path | None = None,
    timeout: float = 60,
    stdin: str = "",
) -> Completed:
    """Run to the end and keep what it printed. Never raises for a command that is missing, slow or failing."""
    try:
        done = subprocess.run(
            list(tokens),
            env=env,
            cwd=cwd,
            input=stdin,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=timeout,
        )
    except FileNotFoundError as error:
        return Completed(127, "", f"{tokens[0]}: {error.strerror}")
    except subprocess.TimeoutExpired:
        return Completed(124, "", f"{tokens[0]}: no answer within {timeout:g} s")
    return Completed(done.returncode, done.stdout, done.stderr)


def start(
    tokens: Sequence[str],
    *,
    env: Mapping[str, str] | None = None,
    cwd: Path | None = None,
    stdin: int | IO[Any] | None = None,
    stdout: int | IO[Any] | None = None,
    stderr: int | IO[Any] | None = None,
    new_session: bool = False,
    die_with_parent: bool = False,
) -> subprocess.Popen[bytes]:
    """Start a process and return at once; the caller owns it. ``new_session`` shields it from the terminal's Ctrl-C.

    ``die_with_parent`` has Linux kill it when the thread that called this ends, so that not even SIGKILL to us
    leaves it behind; elsewhere it does nothing.
    """
    return subprocess.Popen(
        list(tokens),
        env=env,
        cwd=cwd,
        stdin=stdin,
        stdout=stdout,
        stderr=stderr,
        start_new_session=new_session,
        # Two system calls: safe where there are threads, which the linter warns of.
        preexec_fn=partial(_die_with_parent, os.getpid()) if die_with_parent and _LIBC is not None else None,  # noqa: PLW1509
    )


# Loaded before any fork: the child may only make the call.
_LIBC = ctypes.CDLL(None, use_errno=True) if sys.platform == "linux" else None
_PR_SET_PDEATHSIG = 1


def _die_with_parent(parent: int) -> None:
    assert _LIBC is not None
    _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() not in (
        parent,
        0,
    ):  # it has ended before the kernel was told; 0: it is of another namespace
        os._exit(128 + signal.SIGKILL)
