"""Whose line is it? What launchers put before a rank's lines, where ranks share one log."""

from __future__ import annotations

import re

_OURS = re.compile(r"\[rank (\d+)\] ?")
# srun's own label counts only under srun: "3: " may begin anybody's line.
_SRUN = re.compile(r" *(\d+): ?")


def split_label(line: str, launcher: str) -> tuple[int | None, str]:
    """(rank, the line without its label); (None, the line) where no rank's label stands before it."""
    for pattern in (_OURS, _SRUN) if launcher == "srun" else (_OURS,):
        found = pattern.match(line)
        if found:
            return int(found[1]), line[found.end() :]
    return None, line
