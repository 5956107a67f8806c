"""What a training prints: the numbers of its last lines, and whether rankup said that something was lost."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from rankup.core.plain_text import plain

LAST_LINES = 20
_MOST_BYTES = 1 << 20
_NUMBER = re.compile(r"[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?|\b(?:nan|inf)\b")
_LOST = re.compile(r"\[state-lost\]|^\s*warning: .*\blost\b")


def last_lines(logs: Path) -> tuple[str, ...]:
    """The last lines of rank 0's standard output."""
    return tuple(line.rstrip() for line in _lines(logs / "rank-0.out") if line.strip())[-LAST_LINES:]


def lost_lines(logs: Path) -> tuple[str, ...]:
    """What rankup said on any rank about state that was lost."""
    return tuple(
        line.strip()
        for path in sorted(logs.glob("rank-*.err"))
        for line in _lines(path)
        if _LOST.search(line)
    )


def other_numbers(first: Sequence[str], again: Sequence[str], other: Sequence[str]) -> tuple[str, str] | None:
    """The last line of ``first`` whose numbers are others in ``other``, and that one's line. Lines in which the two
    uninterrupted trainings differ, such as one with a time, are left out.

    A resumed training prints fewer lines, so they are compared from the end, as long as their words are the same.
    """
    for mine, twin, theirs in zip(reversed(first), reversed(again), reversed(other), strict=False):
        if mine != twin or mine == theirs:
            continue
        if _NUMBER.sub("0", mine) != _NUMBER.sub("0", theirs):
            return None
        return mine, theirs
    return None


def _lines(path: Path) -> Iterator[str]:
    """Of the last part of a log."""
    if not path.is_file():
        return
    with path.open("rb") as file:
        file.seek(max(0, path.stat().st_size - _MOST_BYTES))
        yield from map(plain, file.read().decode(errors="replace").splitlines())
