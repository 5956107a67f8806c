"""Which code is the user's script, which of its lines is running, and which are shown of an error that ends it."""

from __future__ import annotations

import os
import sys
import sysconfig
import time
import traceback
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from types import FrameType, TracebackType

from rankup.core.whole_lines import say
from rankup.errors import RankupError

_OURS = str(Path(__file__).parents[1]) + os.sep
_STANDARD = tuple({sysconfig.get_path(name) + os.sep for name in ("stdlib", "platstdlib")})
# Wherever they are: those of this interpreter, in ~/.local, in a PYTHONPATH of the cluster.
_INSTALLED = (f"{os.sep}site-packages{os.sep}", f"{os.sep}dist-packages{os.sep}")


@lru_cache(maxsize=4096)
def is_library(file: str) -> bool:
    """Whether the code in ``file`` is not the script's: rankup's, the standard library's, an installed package's."""
    return file.startswith((_OURS, "<frozen", *_STANDARD)) or any(part in file for part in _INSTALLED)


def script_frames(frame: FrameType | None = None) -> Iterator[FrameType]:
    """The frames of the script on the stack of ``frame`` (the caller's), from the innermost on."""
    at: FrameType | None = frame or sys._getframe(1)
    while at is not None:
        if not is_library(at.f_code.co_filename):
            yield at
        at = at.f_back


def call_site(frame: FrameType | None = None) -> str:
    """``train.py:33``: the innermost line of the script, from ``frame`` (the caller's) outwards."""
    innermost = frame or sys._getframe(1)
    at = next(script_frames(innermost), innermost)
    return place(at.f_code.co_filename, at.f_lineno)


def place(file: str, line: int) -> str:
    """``train.py:33``, relative to the working directory."""
    here = os.getcwd() + os.sep  # noqa: PTH109  # a string is all that is needed
    return f"{file.removeprefix(here)}:{line}"


_installed = False
# The rank that prints an error whole should be seen to fail first: the launcher ends the others then.
_FIRST_S = 0.5


def install_error_display() -> None:
    """From now on, for a ``RankupError`` alone; with ``RANKUP_DEBUG`` all lines are shown.

    An error that another rank tells is one line here."""
    global _installed
    if _installed or os.environ.get("RANKUP_DEBUG", "") not in ("", "0"):
        return
    _installed = True
    previous = sys.excepthook

    def hook(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        if not isinstance(error, RankupError):
            previous(kind, error, trace)
            return
        if error.told_by is not None:
            say(f"RankupError: {error.message} [{error.code}] (rank {error.told_by} says more)")
            time.sleep(_FIRST_S)
            return
        frames = [frame for frame in traceback.extract_tb(trace) if not is_library(frame.filename)]
        lines = ["Traceback (most recent call last):\n", *traceback.format_list(frames)]
        lines += traceback.format_exception_only(error)
        say("".join(lines).rstrip("\n"))

    sys.excepthook = hook
