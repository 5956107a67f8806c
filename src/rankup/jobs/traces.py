"""What a job's script and its ranks left in the run directory: how far it came, whatever the scheduler still knows."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

FINAL = ("done", "failed", "cancelled")
# A job that begins anew begins without these; "attempts" and the logs go on.
OF_ONE_LIFE = ("outcome", "outcome.json", "exit_code", "requeues", "STOP", "CANCELLED")


@dataclass(frozen=True)
class Traces:
    """A run, or one task of an array. None and 0 where there is no such file: it may also only be late (NFS).

    ``outcome`` is one word; ``exit_code`` is the last attempt's, 75 where it asked to be requeued; ``attempts`` counts
    those that began, ``requeues`` how often one asked to go on; ``stop`` is the reason in STOP (time-limit, signal,
    user).
    """

    outcome: str | None = None
    exit_code: int | None = None
    attempts: int = 0
    requeues: int = 0
    stop: str = ""

    @property
    def final(self) -> bool:
        """Whether the script itself said how all of it ended."""
        return self.outcome in FINAL and self.exit_code is not None


def read_traces(folder: Path) -> Traces:
    return Traces(
        outcome=next(iter(_words(folder / "outcome")), None),
        exit_code=_number(folder / "exit_code"),
        attempts=len(_text(folder / "attempts").splitlines()),
        requeues=_number(folder / "requeues") or 0,
        stop=next(iter(_words(folder / "STOP")), ""),
    )


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
