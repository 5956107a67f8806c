"""What rankup says on a stream that others write to as well: whole lines, each of which begins where a line does.

A progress bar leaves its line unfinished, and a message would be glued to it. So a process watches what is written to
its streams, and ends such a line before rankup says something. A message is one write: ``python -u``, which torchrun
uses, shows each write at once, and the lines of several processes would mix.
"""

from __future__ import annotations

import contextlib
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import TextIO

# Between the script's line and a warning stand rankup's own, and those of its context managers.
_BETWEEN = (str(Path(__file__).parents[1]), contextlib.__file__)


def say(text: str) -> None:
    """Print ``text`` and the end of its line to stderr, at once."""
    if sys.stderr is None:  # closed by who started the process
        return
    end_line(sys.stderr)
    sys.stderr.write(f"{text}\n")
    sys.stderr.flush()


def warn(text: str) -> None:
    """``warnings.warn`` about the line that called rankup, on a line of its own."""
    end_line(sys.stderr)
    level, frame = 1, sys._getframe()
    while frame.f_back is not None and frame.f_code.co_filename.startswith(_BETWEEN):
        level, frame = level + 1, frame.f_back
    warnings.warn(text, stacklevel=level)


def end_line(stream: TextIO | None) -> None:
    """End the line that was left unfinished on a watched ``stream``, or on the terminal that it shares."""
    watch = None if stream is None else _watch_of(stream)
    if stream is not None and watch is not None and watch.line.unfinished:
        stream.write("\n")


class Line:
    """The last line of a terminal, a pipe or a file. ``before`` is called before anything is written."""

    def __init__(self) -> None:
        self.unfinished = False
        self.before: Callable[[], None] = no_bar

    def take(self, text: str) -> None:
        _, newline, last = text.rpartition("\n")
        begun, *overwritten = last.split("\r")
        self.unfinished = bool(begun.strip()) or (self.unfinished and not newline)
        for part in filter(None, overwritten):
            self.unfinished = not part.isspace()  # a bar erases itself with spaces


def watch_lines() -> list[Line]:
    """Watch stdout and stderr from now on; a terminal that both write to is one line.

    The streams stay the same objects: a bar or a logger may hold them already. A script's own object in their place
    need not have more than ``write``: one that cannot be watched is left as it is."""
    shared = Line()
    lines = []
    for stream in filter(None, (sys.stdout, sys.stderr)):
        watch = _watch_of(stream)
        if watch is None:
            try:
                watch = _Watch(stream, shared if stream.isatty() else Line())
                for name in ("write", "flush"):
                    setattr(stream, name, getattr(watch, name))
            except AttributeError:
                continue
        lines.append(watch.line)
    return lines


def no_bar() -> None:
    pass


class _Watch:
    """Of one stream, whose ``write`` and ``flush`` these are now."""

    def __init__(self, stream: TextIO, line: Line) -> None:
        self.line = line
        self._write, self._flush = stream.write, stream.flush

    def write(self, text: str) -> int:
        self.line.before()
        self.line.take(text)
        return self._write(text)

    def flush(self) -> None:
        """``input()`` writes its prompt past this object, and flushes before."""
        self.line.before()
        self._flush()


def _watch_of(stream: TextIO) -> _Watch | None:
    owner = getattr(stream.write, "__self__", None)
    return owner if isinstance(owner, _Watch) else None
