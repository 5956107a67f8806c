"""How an uncaught error is shown: with the lines of the script, without those of libraries."""

from __future__ import annotations

import os
import sys
import traceback
from types import TracebackType

from rankup.errors import RankupError
from rankup.runtime.call_site import is_library

_installed = False


def install_error_display() -> None:
    """From now on, for a ``RankupError`` alone; with ``RANKUP_DEBUG`` all lines are shown."""
    global _installed
    if _installed or os.environ.get("RANKUP_DEBUG", "") not in ("", "0"):
        return
    _installed = True
    previous = sys.excepthook

    def hook(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        if not isinstance(error, RankupError):
            previous(kind, error, trace)
            return
        frames = [frame for frame in traceback.extract_tb(trace) if not is_library(frame.filename)]
        lines = ["Traceback (most recent call last):\n", *traceback.format_list(frames)]
        lines += traceback.format_exception_only(error)
        sys.stderr.write("".join(lines))  # at once: other ranks write to the same terminal

    sys.excepthook = hook
