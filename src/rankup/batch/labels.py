"""The label that launchers put before the lines of a rank in a shared log."""

from __future__ import annotations

import re

_OURS = re.compile(r"\[rank (\d+)\] ?")
# srun's own label counts only under srun: any program may print "3: ".
_SRUN = re.compile(r" *(\d+): ?")


def split_label(line: str, launcher: str) -> tuple[int | None, str]:
    """(rank, the line without its label); (None, the line) if it has no label."""
    for pattern in (_OURS, _SRUN) if launcher == "srun" else (_OURS,):
        found = pattern.match(line)
        if found:
            return int(found[1]), line[found.end() :]
    return None, line
