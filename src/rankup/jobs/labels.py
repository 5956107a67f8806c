"""Whose line is it? What launchers put before a rank's lines, where ranks share one log."""

from __future__ import annotations

import re

_OURS = re.compile(r"\[rank (\d+)\] ?")
# A launcher's own label counts only under that launcher: "3: " may begin anybody's line.
_LABELS = {
    "srun": (re.compile(r" *(\d+): ?"),),
    # Open MPI 4 writes "[1,3]<stdout>:text", Open MPI 5 "[prterun-node1-17@1,3]<stdout>: text".
    "mpirun": (
        re.compile(r"\[\d+,(\d+)\]<std(?:out|err|diag)>:"),
        re.compile(r"\[[^\],]*@\d+,(\d+)\]<std(?:out|err)>: ?"),
    ),
}


def split_label(line: str, launcher: str) -> tuple[int | None, str]:
    """(rank, the line without its label); (None, the line) where no rank's label stands before it."""
    for pattern in (_OURS, *_LABELS.get(launcher, ())):
        found = pattern.match(line)
        if found:
            return int(found[1]), line[found.end() :]
    return None, line
