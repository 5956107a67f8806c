"""Printing: errors in one form, colours only on a terminal."""

from __future__ import annotations

import contextlib
import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

from rankup.errors import RankupError

if TYPE_CHECKING:  # `rankup --help` does not need it
    from rankup.findings.finding import Finding

_STYLES = {"red": "31;1", "green": "32", "yellow": "33", "cyan": "36", "bold": "1", "dim": "2"}
_SEVERITY_STYLES = {"error: ": "red", "warning: ": "yellow", "note: ": "cyan"}
_WIDEST = 120  # columns: longer lines are hard to read


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
    """Print a line of rankup's own to stderr at once, whole; does nothing if the reader has closed it."""
    stream = stream or sys.stderr
    try:
        stream.write(f"{text}\n")
        stream.flush()
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
    from rankup.findings.error import FindingsError, findings_of

    draw_findings(findings_of(error))
    if isinstance(error, FindingsError) and (len(error.findings) > 1 or error.conclusion):
        say(f"rankup: {error.summary()}")


def draw_findings(findings: Sequence[Finding]) -> None:
    """To stderr, as they come: the engine has put them in order."""
    from rankup.findings.text import text_lines

    for line in text_lines(findings, text_width(sys.stderr)):
        say(coloured_severity(line, sys.stderr))


def text_width(stream: TextIO) -> int | None:
    """A terminal gets lines of its width; a file or a pipe whole ones (None), which grep finds."""
    import shutil

    return min(shutil.get_terminal_size().columns, _WIDEST) if stream.isatty() else None


def coloured_severity(line: str, stream: TextIO) -> str:
    """``line`` with a coloured severity, if it begins with one and ``stream`` shows colours."""
    for head, style in _SEVERITY_STYLES.items():
        if line.startswith(head):
            return paint(head, style, stream) + line.removeprefix(head)
    return line


def shown(path: Path) -> str:
    """A path as it can be typed here: relative if it is below the current directory."""
    here = Path.cwd()
    return str(path.relative_to(here)) if path.is_relative_to(here) else str(path)
