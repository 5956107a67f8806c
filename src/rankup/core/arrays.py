"""The indices of a job array, and what is kept for each of its tasks."""

from __future__ import annotations

from pathlib import Path


def indices(array: str) -> list[int]:
    """``"0-6:2,9%4"`` → [0, 2, 4, 6, 9]; none for a job that is no array."""
    found: set[int] = set()
    for part in array.partition("%")[0].split(",") if array else ():
        span, _, step = part.partition(":")
        first, _, last = span.partition("-")
        found.update(range(int(first), int(last or first) + 1, int(step or 1)))
    return sorted(found)


def task_folder(run: Path, index: int) -> Path:
    return run / f"task-{index}"


def task_id(job: str, index: int) -> str:
    """A task's id, of its array's: 123 → 123_4, 123;east → 123_4;east, 123[].head → 123[4].head."""
    if "[]" in job:
        return job.replace("[]", f"[{index}]")
    number, at, cluster = job.partition(";")
    return f"{number}_{index}{at}{cluster}"
