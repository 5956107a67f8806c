"""Prints the lines of ranks: each line whole, with the rank that it came from."""

from __future__ import annotations

import sys

from rankup.cli.output.console import let_go, paint
from rankup.core.rundir import RunDir

_COLOURS = ("cyan", "green", "yellow", "dim")


class LineView:
    """Prints the ranks' stdout to stdout and their stderr to stderr; with ``to_stderr`` all of it to stderr."""

    def __init__(self, *, to_stderr: bool = False) -> None:
        self._to_stderr = to_stderr

    def line(self, rank: int | None, stream: str, text: str) -> None:
        target = sys.stderr if stream == "err" or self._to_stderr else sys.stdout
        if rank is not None:
            text = paint(f"[rank {rank}]", _COLOURS[rank % len(_COLOURS)], target) + " " + text
        try:
            target.write(text + "\n")
            target.flush()
        except BrokenPipeError:
            let_go(target)  # the run continues, and its logs have every line

    def tick(self, run: RunDir) -> None:
        pass
