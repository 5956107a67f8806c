"""The progress of a training, for people: a bar on a terminal, a line now and then in a job's log.

On several processes under ``rankup run`` the command line draws the bar, from the records; it tells the ranks by
``RANKUP_PROGRESS=off``. The standard library alone: a job imports this.
"""

from __future__ import annotations

import logging
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
        self._at_line_start = True  # else the bar would erase what the script has printed
        self._streams = (sys.stdout, sys.stderr)
        self._handlers: list[tuple[logging.StreamHandler[Any], Any]] = []  # of logging, and their streams
        if terminal is not None:
            before = (sys.stdout, sys.stderr)
            sys.stdout = _Watched(sys.stdout, self)
            sys.stderr = _Watched(sys.stderr, self)
            self._follow_handlers(dict(zip(map(id, before), (sys.stdout, sys.stderr), strict=True)))

    def _follow_handlers(self, watched: Mapping[int, Any]) -> None:
        """Handlers that were made earlier hold the streams themselves."""
        loggers = [logging.getLogger(), *logging.Logger.manager.loggerDict.values()]
        for logger in loggers:
            for handler in getattr(logger, "handlers", ()):  # a placeholder of a package has none
                if isinstance(handler, logging.StreamHandler) and id(handler.stream) in watched:
                    self._handlers.append((handler, handler.stream))
                    handler.setStream(watched[id(handler.stream)])

    @classmethod
    def for_this_process(cls, *, in_run: bool) -> ProgressDisplay | None:
        """The display that suits this process; None: it shows nothing. ``in_run``: its output goes to a run's logs."""
        if sys.stderr.isatty() and os.environ.get("TERM", "dumb") != "dumb":
            try:
                # Not stderr itself: under `rankup run` that goes to a log as well.
                return cls(open("/dev/tty", "w", encoding="utf-8", errors="replace"))  # noqa: PTH123
            except OSError:
                return None
        return cls(None) if in_run else None

    def show(self, record: Mapping[str, Any]) -> None:
        now = perf_counter()
        if self._terminal is not None:
            if self._at_line_start and now >= self._printed_at + _QUIET_S:
                self._draw(self._terminal, record)
        elif now >= self._next_line:
            self._pause = min(LONGEST_PAUSE_S, 1.5 * self._pause)
            self._next_line = now + self._pause
            sys.stderr.write(f"{progress_place(record)}  {progress_numbers(record)}\n")
            sys.stderr.flush()

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

    def ends_line(self, whole: bool) -> None:
        self._at_line_start = whole

    def close(self) -> None:
        self.erase()
        for handler, stream in self._handlers:
            if isinstance(handler.stream, _Watched):
                handler.setStream(stream)
        self._handlers.clear()
        if self._terminal is not None:
            for name in ("stdout", "stderr"):
                if isinstance(getattr(sys, name), _Watched):
                    setattr(sys, name, getattr(sys, name).stream)
            self._terminal.close()


class _Watched:
    """A stream that erases the bar before it is written to."""

    def __init__(self, stream: TextIO, display: ProgressDisplay) -> None:
        self.stream = stream
        self._display = display

    def write(self, text: str) -> int:
        self._display.erase()
        if text:
            self._display.ends_line(text.endswith("\n"))
        return self.stream.write(text)

    def flush(self) -> None:
        """``input()`` writes its prompt past this object, and flushes before."""
        self._display.erase()
        self.stream.flush()

    def __getattr__(self, name: str) -> Any:
        return getattr(self.stream, name)
