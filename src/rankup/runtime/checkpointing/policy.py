"""When a run saves, and which snapshots it keeps."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass, field, replace
from pathlib import Path

from rankup.core.choices import LOST, RESUME_WITH
from rankup.core.units import parse_duration
from rankup.errors import RankupError, check_types
from rankup.snapshots.layout import Retention

# The environment overrides the script: ``rankup verify`` saves more often, and to another directory.
EVERY_VARIABLE, DIRECTORY_VARIABLE = "RANKUP_SNAPSHOT_EVERY", "RANKUP_SNAPSHOT_DIR"


@dataclass(frozen=True)
class Snapshots:
    """When to save and what to keep. ``every``: ``"10m"``, ``"500 steps"``, ``"2 epochs"``, or ``"off"``: only when
    told to stop. ``directory``: default is ``snapshots`` in the run directory; without either nothing is saved.

    ``resume_with``: ``"new"`` or ``"old"``, which settings (a learning rate) to use if those of the script differ from
    those of the snapshot; None makes a difference an error that names them. ``lost``: what to do about values that
    change in training and are in no snapshot: ``"stop"`` ends the attempt, ``"accept"`` goes on without them; None
    says it, and stops a resume that would lose them.

    RANKUP_SNAPSHOT_EVERY, RANKUP_SNAPSHOT_DIR, RANKUP_RESUME_WITH and RANKUP_LOST in the environment override these
    values."""

    every: str = "10m"
    keep: Retention = field(default_factory=Retention)
    asynchronous: bool = True
    directory: str | Path | None = None
    resume_with: str | None = None
    lost: str | None = None

    def __post_init__(self) -> None:
        check_types(
            "rankup.Snapshots",
            {
                "every": (self.every, (str,), '"10m", every="500 steps" or every="2 epochs"'),
                "keep": (self.keep, (Retention,), "rankup.Retention(last=2)"),
                "asynchronous": (self.asynchronous, (bool,), "False"),
                "directory": (self.directory, (str, Path, type(None)), '"snapshots"'),
                "resume_with": (self.resume_with, (str, type(None)), '"new"'),
                "lost": (self.lost, (str, type(None)), '"accept"'),
            },
        )
        self.interval()
        RESUME_WITH.check(self.resume_with, "resume_with")
        LOST.check(self.lost, "lost")

    def in_force(self) -> Snapshots:
        """These values, with those of the environment in their place."""
        every, directory = os.environ.get(EVERY_VARIABLE), os.environ.get(DIRECTORY_VARIABLE)
        return replace(
            self,
            every=every or self.every,
            directory=Path(directory) if directory else self.directory,
            resume_with=os.environ.get(RESUME_WITH.variable) or self.resume_with,
            lost=os.environ.get(LOST.variable) or self.lost,
        )

    def interval(self) -> tuple[str, int]:
        """("s" | "step" | "epoch" | "", how many)."""
        if self.every == "off":
            return "", 0
        counted = re.fullmatch(r"(\d+) ?(step|epoch)s?", self.every)
        if counted and int(counted[1]) > 0:
            return counted[2], int(counted[1])
        try:
            return "s", parse_duration(self.every)
        except ValueError:
            raise RankupError(
                "bad-interval",
                f"invalid snapshot interval {self.every!r}",
                hint="use e.g. 10m, 500 steps, 2 epochs or off",
            ) from None
