"""What a job's script and its ranks left in the run directory: how far it came, whatever the scheduler still knows."""

from __future__ import annotations

import signal
import time
from dataclasses import dataclass
from pathlib import Path

FINAL = ("done", "failed", "cancelled")
REQUEUE_CODE = 75  # of a job that asks to be requeued
ATTEMPTS = "attempts"  # a line for each attempt that began
# A job that begins anew begins without these; "attempts" and the logs go on.
RESET_MARKERS = (
    *("outcome", "outcome.json", "exit_code", "failure", "failures", "why"),
    *("requeues", "no_progress", "STOP", "CANCELLED"),
)


@dataclass(frozen=True)
class Failure:
    """The rank that failed first: ``time`` in epoch seconds, ``code`` 128 + N for a signal, ``words`` its exception."""

    time: float
    rank: int
    host: str
    code: int
    words: str = ""

    def __str__(self) -> str:
        how = f"exit code {self.code}"
        if self.code > 128:
            name = next((s.name for s in signal.Signals if s == self.code - 128), f"signal {self.code - 128}")
            how = f"killed by {name}" + (" (often: out of memory)" if name == "SIGKILL" else "")
        when = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(self.time))
        said = f": {self.words}" if self.words else ""
        return f"rank {self.rank} on {self.host} failed first, at {when}: {how}{said}"


@dataclass(frozen=True)
class Markers:
    """A run, or one task of an array. None and 0 where there is no such file: it may also only be late (NFS).

    ``outcome`` is one word; ``exit_code`` is the last attempt's, 75 where it asked to be requeued; ``attempts`` counts
    those that began, ``requeues`` how often one asked to go on; ``stop`` is the reason in STOP (time-limit, signal,
    user). ``failure`` is the rank that failed first, ``why`` the script's own word for an end of another kind.
    ``began``, ``ended`` and ``host`` are those of the last attempt: in epoch seconds, and its first node.
    """

    outcome: str | None = None
    exit_code: int | None = None
    attempts: int = 0
    requeues: int = 0
    stop: str = ""
    began: int | None = None
    ended: float | None = None
    host: str = ""
    failure: Failure | None = None
    why: str = ""

    @property
    def final(self) -> bool:
        """Whether the script itself said how all of it ended."""
        return self.outcome in FINAL and self.exit_code is not None

    @property
    def elapsed(self) -> int | None:
        """How long the last attempt took, in seconds; None if it is not known to have ended."""
        if self.began is None or self.ended is None:
            return None
        return max(int(self.ended - self.began), 0)


def read_markers(folder: Path) -> Markers:
    attempts = _text(folder / "attempts").splitlines()
    words = [*attempts[-1].split(), "", "", "", ""] if attempts else [""] * 4  # number, job, time, host
    return Markers(
        outcome=next(iter(_words(folder / "outcome")), None),
        exit_code=_number(folder / "exit_code"),
        attempts=len(attempts),
        requeues=_number(folder / "requeues") or 0,
        stop=next(iter(_words(folder / "STOP")), ""),
        began=int(words[2]) if words[2].isdecimal() else None,
        ended=_written_at(folder / "exit_code"),
        host=words[3],
        failure=_failure(folder / "failure"),
        why=_text(folder / "why").strip(),
    )


def _failure(path: Path) -> Failure | None:
    first, _, words = _text(path).partition("\n")
    try:
        when, rank, host, code = first.split()
        return Failure(float(when), int(rank), host, int(code), words.strip())
    except ValueError:  # not there, or of another kind
        return None


def _text(path: Path) -> str:
    try:
        return path.read_text(errors="replace")
    except OSError:  # not there, or a network file system that has just lost sight of it
        return ""


def _words(path: Path) -> list[str]:
    return _text(path).split()


def _number(path: Path) -> int | None:
    words = _words(path)
    return int(words[0]) if words and words[0].isdecimal() else None


def _written_at(path: Path) -> float | None:
    try:
        return path.stat().st_mtime
    except OSError:
        return None
