"""The progress of a run on a terminal, for any script that loops over ``run.steps`` or ``run.epochs``.

The bar is drawn here, in the process that started the ranks, from the records that rank 0 appends to: one process or
a hundred, it is the same bar.
"""

from __future__ import annotations

import json
from typing import Any, TextIO

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn

from rankup.cli.output.rank_lines import LineView
from rankup.core.progress import progress_numbers, progress_place, progress_share
from rankup.core.rundir import RunDir


class PlainView(LineView):
    """Lines of rank 0 have no prefix: it reports for all ranks."""

    def line(self, rank: int | None, stream: str, text: str) -> None:
        super().line(None if rank == 0 and stream == "out" else rank, stream, text)


class BarView:
    """A context manager. At the end the bar is removed; the lines of the epochs stay."""

    def __init__(self) -> None:
        self._console = Console(highlight=False)
        self._progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(bar_width=24),
            TextColumn("{task.percentage:>3.0f} %  {task.fields[said]}"),
            console=self._console,
            transient=True,
        )
        self._task = self._progress.add_task("starting", total=None, said="")
        self._file: TextIO | None = None
        self._rest = ""

    def __enter__(self) -> BarView:
        self._progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._progress.stop()
        if self._file is not None:
            self._file.close()

    def line(self, rank: int | None, stream: str, text: str) -> None:
        said = text if rank in (0, None) else f"[rank {rank}] {text}"
        self._progress.console.print(said, markup=False, soft_wrap=True)

    def tick(self, run: RunDir) -> None:
        """Read the new records; whole lines only."""
        path = run.records / "steps.jsonl"
        if self._file is None and path.exists():
            self._file = path.open(encoding="utf-8")
        if self._file is None:
            return
        *lines, self._rest = (self._rest + self._file.read()).split("\n")
        if lines:
            steps = [record for record in map(json.loads, filter(None, lines)) if record["kind"] == "step"]
            if steps:
                self._show(steps[-1])

    def _show(self, step: dict[str, Any]) -> None:
        share = progress_share(step)
        self._progress.update(
            self._task,
            description=progress_place(step),
            completed=100 * share if share is not None else 0,
            total=100 if share is not None else None,
            said=progress_numbers(step),
        )
