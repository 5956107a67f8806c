"""Printing: errors in one form, colours only on a terminal."""

from __future__ import annotations

import contextlib
import json
import os
import sys
from typing import Any, TextIO

from rankup.errors import RankupError

_STYLES = {"red": "31;1", "green": "32", "yellow": "33", "cyan": "36", "bold": "1", "dim": "2"}


def colours(stream: TextIO) -> bool:
    """Whether ``stream`` shows colours: a terminal, and NO_COLOR unset (https://no-color.org)."""
    return stream.isatty() and "NO_COLOR" not in os.environ and os.environ.get("TERM") != "dumb"


def paint(text: str, style: str, stream: TextIO | None = None) -> str:
    return f"\x1b[{_STYLES[style]}m{text}\x1b[0m" if colours(stream or sys.stdout) else text


def debugging() -> bool:
    """Whether errors keep their tracebacks: ``rankup --debug …``, or RANKUP_DEBUG."""
    return os.environ.get("RANKUP_DEBUG", "") not in ("", "0")


def answer_in_json(chosen: bool = True) -> None:
    """Called by a command with --json: stdout is then for a program, errors included."""
    global _json
    _json = chosen


# Set by the command: only it knows which --json is its own and which its script's.
_json = False


def say(text: str, stream: TextIO | None = None) -> None:
    """Print a line of rankup's own to stderr at once; does nothing if the reader has closed it."""
    stream = stream or sys.stderr
    try:
        print(text, file=stream, flush=True)
    except (BrokenPipeError, ValueError):  # closed by the reader, or by us
        let_go(stream)


def let_go(stream: TextIO) -> None:
    """Discard what is still written to ``stream``: its reader has closed it (``| head``)."""
    with contextlib.suppress(OSError, ValueError):
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, stream.fileno())
        os.close(nowhere)


def print_json(value: Any) -> None:
    print(json.dumps(value, indent=2, default=str))


def draw_error(error: RankupError) -> None:
    """Print message [code], where and hint to stderr, without a traceback; with --json as JSON on stdout."""
    if _json:
        print_json(error.as_dict())
        return
    first, *rest = (_wrapped(line) for line in error.lines())
    say("\n".join([paint("error: ", "red", sys.stderr) + first, *rest]))


def _wrapped(line: str) -> str:
    """``line`` broken at words to the width of the terminal, with what follows ``  hint:  `` indented below it."""
    if not sys.stderr.isatty():
        return line
    import shutil  # imported only here: `rankup --help` needs neither
    import textwrap

    width = shutil.get_terminal_size().columns
    label = "" if not line.startswith("  ") else line[: line.index(":") + 1].ljust(9)
    return textwrap.fill(
        line.removeprefix(label),
        width if label else width - len("error: "),
        initial_indent=label,
        subsequent_indent=" " * len(label or "error: "),
        break_long_words=False,
        break_on_hyphens=False,
    )
