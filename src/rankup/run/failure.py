"""Which rank failed first, and of what."""

from __future__ import annotations

import re
import signal
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from rankup.core.plain_text import plain

TRACEBACK = "Traceback (most recent call last)"
# Between the output of two attempts, in each log.
ATTEMPT = "=" * 20 + " attempt"
# torch writes the rank before each line of a traceback; we do so ourselves.
TORCH_PREFIX = re.compile(r"^\[rank\d+\]: ?")
# What libstdc++ says when gloo's thread lets go of a tensor and finds no interpreter any more: the script was through.
ABORT_AT_EXIT = "terminate called without an active exception"
_MOST = 200  # characters of a line that is quoted
# What a rank says when another one is gone: a consequence, however early it comes.
CONSEQUENCE = re.compile(
    r"connection (was )?(closed|reset)|broken pipe|remote process exited|peer (closed|is gone)|"
    r"DistNetworkError|DistStoreError|socket timeout|NCCL communicator was aborted",
    re.IGNORECASE,
)


@dataclass(frozen=True)
class Exit:
    """The end of one rank: ``code`` as of its process (negative: a signal), ``time`` in epoch seconds."""

    rank: int
    code: int
    time: float
    attempt: int = 0


def is_consequence(text: str) -> bool:
    return CONSEQUENCE.search(text) is not None


@dataclass(frozen=True)
class Logs:
    """Where the ranks' output is: in ``folder``, and in ``spare`` what could not be written there."""

    folder: Path
    spare: Path | None = None

    def errors(self, rank: int, size: int = 65536) -> list[str]:
        """The last lines of what a rank wrote to stderr."""
        places = [self.folder, *([self.spare] if self.spare else [])]
        return [line for place in places for line in last_lines(place / f"rank-{rank}.err", size)]


def first_failure(exits: Iterable[Exit], logs: Logs) -> Exit | None:
    """The failure that caused the others, as the ranks' logs in ``logs`` tell it."""
    return earliest_cause(exits, lambda end: reason(end, logs))


def earliest_cause(exits: Iterable[Exit], said: Callable[[Exit], str]) -> Exit | None:
    """The failure that caused the others, of the last attempt: the earliest that is not a consequence of another.

    ``said`` is what a rank gave as its reason.
    """
    failed = [e for e in exits if e.code != 0]
    if not failed:
        return None
    last = max(e.attempt for e in failed)

    def order(end: Exit) -> tuple[bool, float]:
        stopped = end.code == -signal.SIGTERM
        return stopped or is_consequence(said(end)), end.time

    return min((e for e in failed if e.attempt == last), key=order)


def left_early(exits: Iterable[Exit], failure: Exit, logs: Logs) -> list[int]:
    """The ranks that had ended with 0 when ``failure`` came, which is a consequence of that: a closed connection."""
    if not is_consequence(reason(failure, logs)):
        return []
    gone = [e for e in exits if e.code == 0 and e.attempt == failure.attempt and e.time <= failure.time]
    return [end.rank for end in sorted(gone, key=lambda end: end.time)]


def reason(end: Exit, logs: Logs) -> str:
    """In one line: the exception that ended the rank, or its exit code or signal, and the last line that it wrote."""
    lines = logs.errors(end.rank)
    if end.code >= 0:
        return last_exception(lines) or f"exit code {end.code}{_last_of(lines)}"
    name = signal.Signals(-end.code).name
    if name == "SIGABRT" and ABORT_AT_EXIT in lines:
        return (
            "killed by SIGABRT as its interpreter ended, while a communicator's thread still ran (`rankup.init()` "
            "waits for it; without it, os._exit(0) is a last line that cannot meet it)"
        )
    return f"killed by {name}" + (" (often: out of memory)" if name == "SIGKILL" else _last_of(lines))


def _last_of(lines: Sequence[str]) -> str:
    last = next((line.strip() for line in reversed(lines) if line.strip()), "")
    return f"; its last line: {last[:_MOST]}" if last else ""


def last_exception(lines: Sequence[str]) -> str | None:
    """The line that names the exception of the last traceback in ``lines``."""
    lines = [TORCH_PREFIX.sub("", line) for line in lines]
    starts = [i for i, line in enumerate(lines) if TRACEBACK in line]
    if not starts:
        return None
    named = (line for line in lines[starts[-1] + 1 :] if line and not line[0].isspace())
    return next(named, None)


def last_lines(path: Path, size: int = 65536) -> list[str]:
    """The last attempt's lines in the last ``size`` bytes of a file; an empty list if the file cannot be read."""
    try:
        with path.open("rb") as file:
            file.seek(max(0, path.stat().st_size - size))
            lines = [plain(line) for line in file.read().decode(errors="replace").splitlines()]
    except OSError:
        return []
    begins = [number for number, line in enumerate(lines) if line.startswith(ATTEMPT)]
    return lines[begins[-1] + 1 :] if begins else lines
