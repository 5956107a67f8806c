"""A line on our terminal that tells for how long something has been going on."""

from __future__ import annotations

import contextlib
import os
import sys
import time

_ERASE = "\r\x1b[2K"


class Elapsed:
    """``what`` is going on, in words. Shows nothing where stderr is no terminal."""

    def __init__(self, what: str) -> None:
        self._shows = sys.stderr.isatty() and os.environ.get("TERM", "dumb") != "dumb"
        self._what = what
        self.since, self._told, self._visible = time.time(), 0, False

    def tick(self) -> None:
        """Once a second at most it tells another second."""
        seconds = int(time.time() - self.since)
        if self._shows and seconds > self._told:
            self._told, self._visible = seconds, True
            _write(f"{_ERASE}{self._what}  {seconds} s")

    def clear(self) -> None:
        """Before something else is printed."""
        if self._visible:
            _write(_ERASE)
            self._visible = False

    def end(self) -> None:
        self.clear()
        self._shows = False


def _write(text: str) -> None:
    with contextlib.suppress(OSError):  # the terminal was closed
        os.write(sys.stderr.fileno(), text.encode())
