"""The progress of a training, for people: a bar on a terminal, a line now and then in a job's log.

On several processes under ``rankup run`` the command line draws the bar, from the records; it tells the ranks by
``RANKUP_PROGRESS=off``. The standard library alone: a job imports this.
"""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Mapping
from time import perf_counter
from typing import Any, TextIO

from rankup.core.progress import (
    progress_numbers,
    progress_place,
    progress_share,
)
from rankup.core.whole_lines import Line, no_bar, say, watch_lines

FIRST_LINE_S, LONGEST_PAUSE_S = 10.0, 300.0
_BAR = 20  # characters
# After the script has printed, its lines may still be on their way to the terminal.
_QUIET_S = 0.2
_ERASE = "\r\x1b[2K"


class ProgressDisplay:
    """A bar on ``terminal``, or lines on stderr if that is None."""

    def __init__(self, terminal: TextIO | None) -> None:
        self._terminal = terminal
        self._next_line, self._pause = perf_counter() + FIRST_LINE_S, FIRST_LINE_S
        self._drawn = False
        self._printed_at = 0.0
        self._lines: list[Line] = []  # the bar must not erase what the script has printed
        if terminal is not None:
            self._lines = watch_lines()
            for line in self._lines:
                line.before = self.erase

    @classmethod
    def for_this_process(cls, *, in_run: bool) -> ProgressDisplay | None:
        """The display that suits this process; None: it shows nothing. ``in_run``: its output goes to a run's logs."""
        if sys.stderr is not None and sys.stderr.isatty() and os.environ.get("TERM", "dumb") != "dumb":
            try:
                # Not stderr itself: under `rankup run` that goes to a log as well.
                return cls(open("/dev/tty", "w", encoding="utf-8", errors="replace"))  # noqa: PTH123
            except OSError:
                return None
        return cls(None) if in_run else None

    def show(self, record: Mapping[str, Any]) -> None:
        now = perf_counter()
        if self._terminal is not None:
            printed = any(line.unfinished for line in self._lines)
            if not printed and now >= self._printed_at + _QUIET_S:
                self._draw(self._terminal, record)
        elif now >= self._next_line:
            self._pause = min(LONGEST_PAUSE_S, 1.5 * self._pause)
            self._next_line = now + self._pause
            say(f"{progress_place(record)}  {progress_numbers(record)}")

    def _draw(self, terminal: TextIO, record: Mapping[str, Any]) -> None:
        share = progress_share(record)
        bar = ""
        if share is not None:
            full = int(share * _BAR)
            bar = f"{'━' * full}{'╌' * (_BAR - full)} {share:4.0%}  "
        line = f"{bar}{progress_place(record)}  {progress_numbers(record)}"
        width = shutil.get_terminal_size().columns - 1
        terminal.write(_ERASE + line[:width])
        terminal.flush()
        self._drawn = True

    def erase(self) -> None:
        """The script prints: its line begins where the bar was."""
        self._printed_at = perf_counter()
        if self._drawn and self._terminal is not None:
            self._drawn = False
            self._terminal.write(_ERASE)
            self._terminal.flush()

    def close(self) -> None:
        self.erase()
        for line in self._lines:
            line.before = no_bar
        if self._terminal is not None:
            self._terminal.close()
