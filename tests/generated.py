"""Files in the repository that a command writes: if one is not what the command would write, the test names both."""

from __future__ import annotations

import difflib
import itertools
from pathlib import Path

import pytest

MOST_LINES = 30  # of a difference


def check_generated(kept: str, made: str, path: Path | str, command: str) -> None:
    """Fail if ``kept``, the text of ``path``, is not ``made``: with the first lines that differ, and ``command``."""
    if kept == made:
        return
    lines = difflib.unified_diff(
        kept.splitlines(), made.splitlines(), "is", "would be", "", "", n=1, lineterm=""
    )
    shown = list(itertools.islice(lines, MOST_LINES + 1))
    more = ["…"] if len(shown) > MOST_LINES else []
    text = "\n".join([*shown[:MOST_LINES], *more])
    pytest.fail(f"{path} is out of date: `{command}` writes it anew\n{text}", pytrace=False)
