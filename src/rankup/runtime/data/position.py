"""The position of the training in one feed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass
class Position:
    """The epoch in progress and how many of its steps are done. With the seed, a resume needs nothing else of the data.

    A step counts as done once its last batch is handed out: in the loop's body, take the state after ``opt.step()``.
    ``total`` counts the steps of all epochs. ``ended`` is True while the code after the inner loop runs: a state taken
    there counts the epoch as finished, so that this code does not run again.
    """

    epoch: int = 0
    step: int = 0
    total: int = 0
    ended: bool = False

    def end_epoch(self) -> None:
        """The code after the inner loop has run, too."""
        self.epoch, self.step, self.ended = self.epoch + 1, 0, False

    def resume(self) -> tuple[int, int]:
        """(epoch, step) for a run that resumes from here."""
        return (self.epoch + 1, 0) if self.ended else (self.epoch, self.step)

    def state(self) -> dict[str, Any]:
        """What a snapshot contains of it."""
        return {"at": list(self.resume()), "total": self.total}

    def load(self, saved: dict[str, Any]) -> None:
        """Restore what ``state`` gave."""
        self.epoch, self.step = saved["at"]
        self.total, self.ended = saved["total"], False
