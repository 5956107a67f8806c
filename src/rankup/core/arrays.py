"""Job arrays ("0-9%4"), what is kept for each of their tasks, and lists of numbers ("1,2,4")."""

from __future__ import annotations

import re
from pathlib import Path

_SPAN = re.compile(r"(\d+)(?:-(\d+)(?::(\d+))?)?", re.ASCII)


def parse_array(array: str) -> list[range]:
    """``"0-6:2,9%4"`` → ``[range(0, 7, 2), range(9, 10)]``; [] for "". Raises ``ValueError`` for anything else."""
    if not array:
        return []
    spans, percent, most = array.partition("%")
    matches = [_SPAN.fullmatch(span) for span in spans.split(",")]
    if None in matches or (percent and not (most.isascii() and most.isdecimal())):
        raise ValueError(f"{array!r} is not a list of indices: use 0-9, 1,3,7 or 0-99%4")
    found = [(int(m[1]), int(m[2] or m[1]), int(m[3] or 1)) for m in matches if m is not None]
    if any(last < first or step == 0 for first, last, step in found):
        raise ValueError(f"{array!r} is not a list of indices: from low to high, in steps of at least 1")
    return [range(first, last + 1, step) for first, last, step in found]


def indices(array: str) -> list[int]:
    """``"0-6:2,9%4"`` → [0, 2, 4, 6, 9]; none for a job that is not an array."""
    return sorted({index for span in parse_array(array) for index in span})


def parse_numbers(text: str) -> list[int]:
    """``"1, 2,4"`` → ``[1, 2, 4]``, all at least 1. Raises ``ValueError`` with the word that is not."""
    words = [word.strip() for word in text.split(",")]
    for word in words:
        if not (word.isascii() and word.isdecimal()) or int(word) < 1:
            raise ValueError(word)
    return [int(word) for word in words]


def task_folder(run: Path, index: int) -> Path:
    return run / f"task-{index}"


def task_id(job: str, index: int) -> str:
    """A task's id, of its array's: 123 → 123_4, 123;east → 123_4;east, 123[].head → 123[4].head."""
    if "[]" in job:
        return job.replace("[]", f"[{index}]")
    number, at, cluster = job.partition(";")
    return f"{number}_{index}{at}{cluster}"
