"""A step record in words: the same for the bar of a terminal, the lines of a job's log, and ``rankup status``.

A step record is one JSON object of ``records/steps.jsonl`` (docs/reference/records.md).
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Mapping
from typing import Any

from rankup.core.rundir import RunDir
from rankup.core.units import duration, rate

_SHOWN_METRICS = 4
_TAIL = 64 * 1024  # bytes, of some 200 records


def newest_step(run: RunDir) -> dict[str, Any] | None:
    """The newest step record of ``run``, None if there is none; cheap for a long file."""
    try:
        with (run.records / "steps.jsonl").open("rb") as file:
            file.seek(max(0, file.seek(0, os.SEEK_END) - _TAIL))
            lines = file.read().split(b"\n")
    except OSError:
        return None
    for line in reversed(lines):
        if b'"kind": "begin"' in line:
            return None  # an attempt has begun, and done no step
        if b'"kind": "step"' in line:
            with contextlib.suppress(ValueError):  # cut off by the tail, or by a crash
                record: dict[str, Any] = json.loads(line)
                return record
    return None


def progress_place(step: Mapping[str, Any]) -> str:
    """``epoch 2/12  step 80/235``, or ``step 80/500`` of a loop over steps."""
    of_epoch = "" if step.get("epochs") is None else f"/{step['epochs']}"
    of_step = "" if step.get("steps") is None else f"/{step['steps']}"
    return f"epoch {step['epoch']}{of_epoch}  step {step['step']}{of_step}"


def progress_numbers(step: Mapping[str, Any]) -> str:
    """``loss 0.3124  accuracy 0.9831  12,300 samples/s  left 1 min 20 s``."""
    shown = list(step.get("metrics", {}).items())[:_SHOWN_METRICS]
    words = [f"{name} nan" if value is None else f"{name} {value:.4g}" for name, value in shown]
    words.append(f"{rate(step['samples_per_s'])} samples/s")
    if step.get("left") is not None:
        words.append(f"left {duration(step['left'])}")
    return "  ".join(words)


def progress_share(step: Mapping[str, Any]) -> float | None:
    """The share in [0, 1] of the whole training that is done; None if its end is not known."""
    goal = step.get("goal")
    return None if not goal else min(1.0, step["global_step"] / goal)
