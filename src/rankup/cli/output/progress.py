"""The progress of a run on a terminal, for any script that loops over ``run.steps`` or ``run.epochs``.

The bar is drawn here, in the process that started the ranks, from the records that rank 0 appends to: one process or
a hundred, it is the same bar. A single process that has the terminal draws its own (``runtime/records``).
"""

from __future__ import annotations

import contextlib
import json
import os
import time
from collections.abc import Iterator
from typing import Any, TextIO

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn

from rankup.cli.output.rank_lines import LineView
from rankup.core.progress import (
    progress_numbers,
    progress_place,
    progress_share,
)
from rankup.core.records import read_records
from rankup.core.rundir import PROGRESS_VARIABLE, RunDir


@contextlib.contextmanager
def progress_of_ranks_hidden() -> Iterator[None]:
    """The ranks that this process starts show no progress of their own: it is shown here, or not wanted."""
    before = os.environ.get(PROGRESS_VARIABLE)
    os.environ[PROGRESS_VARIABLE] = "off"
    try:
        yield
    finally:
        del os.environ[PROGRESS_VARIABLE]
        if before is not None:
            os.environ[PROGRESS_VARIABLE] = before


class PlainView(LineView):
    """Lines of rank 0 have no prefix: it reports for all ranks."""

    def line(self, rank: int | None, stream: str, text: str) -> None:
        super().line(None if rank == 0 and stream == "out" else rank, stream, text)


class BarView(LineView):
    """The lines of the ranks, and below them a bar from the first step on; before the first line, how many of the
    ``ranks`` are there. A context manager, which removes the bar.

    ``plain``: lines of rank 0 have no prefix.
    """

    def __init__(self, ranks: int, *, plain: bool) -> None:
        super().__init__()
        self._ranks, self._started = ranks, 0
        self._starting = True  # until a rank prints something, or trains
        self._stack = contextlib.ExitStack()
        self._plain = plain
        self._progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(bar_width=24),
            TextColumn("{task.fields[said]}"),
            console=Console(highlight=False),
            transient=True,
        )
        self._task = self._progress.add_task("", total=None, said="")
        self._file: TextIO | None = None
        self._rest = ""
        self._made = time.time()

    def __enter__(self) -> BarView:
        self._stack.enter_context(progress_of_ranks_hidden())
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()
        self._progress.stop()
        if self._file is not None:
            self._file.close()

    def line(self, rank: int | None, stream: str, text: str) -> None:
        if self._starting:
            self._starting = False
            self._progress.stop()
        super().line(None if self._plain and rank == 0 and stream == "out" else rank, stream, text)

    def tick(self, run: RunDir) -> None:
        """Read the new records; whole lines only."""
        path = run.records / "steps.jsonl"
        if self._file is None and path.exists():
            self._file = path.open(encoding="utf-8")
            if path.stat().st_mtime < self._made:  # of an attempt before
                self._file.seek(0, os.SEEK_END)
        if self._starting:
            self._show_start(run)
        if self._file is None:
            return
        *lines, self._rest = (self._rest + self._file.read()).split("\n")
        for line in reversed(lines):
            with contextlib.suppress(ValueError):  # a line that a crash has cut
                record = json.loads(line)
                if record.get("kind") == "step":
                    self._show(record)
                    return

    def _show_start(self, run: RunDir) -> None:
        if self._started < self._ranks:
            events = [event for path in run.logs.glob("events*.jsonl") for event in read_records(path)]
            self._started = sum(one["event"] == "start" and one["time"] >= self._made for one in events)
        silent = ", nothing printed yet" if self._started >= self._ranks else ""
        self._progress.start()
        self._progress.update(
            self._task,
            description=f"{self._started} of {self._ranks} ranks started{silent}",
            said=f"{time.time() - self._made:.0f} s",
        )

    def _show(self, step: dict[str, Any]) -> None:
        self._starting = False
        self._progress.start()
        share = progress_share(step)
        self._progress.update(
            self._task,
            description=progress_place(step),
            completed=100 * share if share is not None else 0,
            total=100 if share is not None else None,
            said=progress_numbers(step)
            if share is None
            else f"{100 * share:3.0f} %  {progress_numbers(step)}",
        )
