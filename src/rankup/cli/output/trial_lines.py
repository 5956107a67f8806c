"""What ``rankup scale`` shows while it runs, on stderr: stdout is for the table."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rankup.cli.output.console import say
from rankup.cli.output.rank_lines import LineView
from rankup.core.elapsed import Elapsed
from rankup.core.rundir import RunDir
from rankup.core.units import duration
from rankup.scale.plan import Trial
from rankup.scale.results import Measured


class TrialLines(LineView):
    """A line per run, and the ranks' errors; on a terminal, for how long a run has been going on."""

    def __init__(self) -> None:
        super().__init__()
        self._elapsed = Elapsed("  running")

    def begins(self, number: int, total: int, trial: Trial) -> None:
        what = f"repeat {trial.repeat}" if trial.repeat else "warm-up"
        say(f"run {number} of {total}: {trial.name}, {what} …")
        self._elapsed = Elapsed("  running")

    def submitted(self, trial: Trial, job: str) -> None:
        say(f"  job {job}")

    def ended(self, trial: Trial, measured: Measured | None, failure: Mapping[str, Any] | None) -> None:
        self._elapsed.end()
        if failure is not None:
            say(f"  {failure['message']}")
        elif measured is not None:
            accuracy = "" if measured.accuracy is None else f", accuracy {measured.accuracy:.2%}"
            say(f"  {trial.name}: {duration(measured.seconds)}{accuracy}")

    def line(self, rank: int | None, stream: str, text: str) -> None:
        self._elapsed.clear()
        if stream == "err":
            super().line(rank, stream, text)
        elif rank in (0, None) and text.startswith("epoch "):
            say(f"  {text}")

    def tick(self, run: RunDir) -> None:
        self._elapsed.tick()
