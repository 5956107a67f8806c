"""Traces as the ranks write them, in a few words: what the pure parts of verify are tested on."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from rankup.verify.trace_reader import AttemptTrace, Record


def step(number: int, **other: Any) -> Record:
    """The record of a step of a training that is always the same, but for ``other``."""
    record = {
        "kind": "step",
        "step": number,
        "time": float(number),
        "at": [[0, number]],
        "batch": f"batch-{number}",
        "rows": [f"row-{number}-0", f"row-{number}-1"],
        "loss": [float(number).hex()],
        "random": f"random-{number}",
        "state": {"model/w": f"w-{number}", "optimizer/w/exp_avg": f"m-{number}", "metrics/m": "none"},
        "untracked": {},
    }
    return {**record, **other}


def attempt(
    *steps: Record,
    resumed_at: int = 0,
    begin: Record | None = None,
    end: Record | None = None,
    exit: Record | None = None,
    epochs: list[Record] | None = None,
    behind: list[Record] | None = None,
    frozen: str = "",
    starts: dict[int, Record] | None = None,
) -> AttemptTrace:
    """Of one rank; what it found at its beginning is what the steady training has there, but for ``begin``."""
    found = {**step(resumed_at), "world_size": 1, **(begin or {})}
    return AttemptTrace(
        Path("trace"),
        {0: found},
        {record["step"]: {0: record} for record in steps},
        {0: end} if end is not None else {},
        {0: exit} if exit is not None else {},
        tuple(epochs or ()),
        tuple(behind or ()),
        frozen,
        starts or {0: found},
    )


def steady(first: int = 1, last: int = 6, **other: Any) -> AttemptTrace:
    """Steps ``first`` to ``last`` without any difference; it resumed at the one before."""
    return attempt(*(step(number, **other) for number in range(first, last + 1)), resumed_at=first - 1)
