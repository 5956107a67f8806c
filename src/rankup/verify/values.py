"""The distance of two final snapshots, by ``rankup snapshots diff`` in a process of its own, because it needs torch."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rankup.core import shell
from rankup.errors import RankupError

FP64_TOLERANCE = 1e-9


@dataclass(frozen=True)
class Distance:
    """``largest``: the largest absolute difference of a tensor; ``tensor``: its name. ``double``: all tensors that
    differ are fp64. ``unequal``: the name of a difference without a distance (no tensor, or another shape or dtype).
    """

    largest: float = 0.0
    tensor: str = ""
    double: bool = True
    unequal: str = ""

    @property
    def within(self) -> bool:
        """Whether rounding in fp64 explains it, on another number of processes."""
        return not self.unequal and self.double and self.largest <= FP64_TOLERANCE


def distance(left: Path, right: Path, python: str) -> Distance:
    """Between the newest snapshots in the directories ``left`` and ``right``."""
    done = shell.run(
        [python, "-m", "rankup", "snapshots", "diff", str(left), str(right), "--json"], timeout=600
    )
    if done.code not in (0, 1):
        raise RankupError(
            "snapshots-not-compared",
            f"the final snapshots could not be compared: {(done.out + done.err).strip()}",
            context=f"{left}, {right}",
            exit_code=1,
        )
    return judge(json.loads(done.out))


def judge(differences: Sequence[Mapping[str, Any]]) -> Distance:
    """The distance from the records of ``rankup snapshots diff --json``."""
    for one in differences:
        if one["largest"] is None:
            return Distance(unequal=one["name"])
    if not differences:
        return Distance()
    most = max(differences, key=lambda one: float(one["largest"]))
    double = all(one["left"].startswith(("float64", "complex128")) for one in differences)
    return Distance(most["largest"], most["name"], double)
