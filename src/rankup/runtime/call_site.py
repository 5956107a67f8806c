"""The line of the user's script that is running."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from types import FrameType

import torch

_OURS = str(Path(__file__).parents[1]) + os.sep
LIBRARIES = (_OURS, str(Path(torch.__file__).parent) + os.sep, str(Path(os.__file__).parent) + os.sep)


def call_site(frame: FrameType | None = None) -> str:
    """``train.py:33``: the innermost line that is not in a library, from ``frame`` (the caller's) outwards."""
    innermost = frame or sys._getframe(1)
    at = _of_script(innermost) or innermost
    return place(at.f_code.co_filename, at.f_lineno)


def _of_script(frame: FrameType) -> FrameType | None:
    at: FrameType | None = frame
    while at is not None:
        name = at.f_code.co_filename
        if not name.startswith(LIBRARIES) and not name.startswith("<frozen"):
            break
        at = at.f_back
    return at


def place(file: str, line: int) -> str:
    """``train.py:33``, relative to the working directory."""
    here = os.getcwd() + os.sep  # noqa: PTH109  # a string is all that is needed
    return f"{file.removeprefix(here)}:{line}"
