"""Who looks on while a job runs, and what it is shown."""

from __future__ import annotations

from typing import Protocol

from rankup.core.rundir import RunDir


class View(Protocol):
    """Who looks on while a job runs; called from the thread that called ``execute``."""

    def line(self, rank: int | None, stream: str, text: str) -> None:
        """A line without its end; ``stream`` is "out" or "err".

        Rank None: there is no rank to tell apart. The only process of a job speaks, or rankup, or a launcher.
        """

    def tick(self, run: RunDir) -> None:
        """Called about ten times a second while the processes run."""


class SilentView:
    """A view that shows nothing; the logs keep everything."""

    def line(self, rank: int | None, stream: str, text: str) -> None:
        pass

    def tick(self, run: RunDir) -> None:
        pass
