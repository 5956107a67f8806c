"""Where training on one feed stands."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass
class Position:
    """The epoch in progress and the steps of it that are done: with the seed, all that a resume needs of the data.

    ``step`` counts a step as done from the moment its last batch is handed out: state taken in the loop's body is
    meant to be taken after ``opt.step()``. ``total`` counts the steps of all epochs. ``ended`` is True while the code
    behind the inner loop runs: state taken there counts the epoch as finished, so that this code is not run again.
    """

    epoch: int = 0
    step: int = 0
    total: int = 0
    ended: bool = False

    def advance(self) -> None:
        """The last batch of a step is handed out."""
        self.step += 1
        self.total += 1

    def end_epoch(self) -> None:
        """The code behind the inner loop is through as well."""
        self.epoch, self.step, self.ended = self.epoch + 1, 0, False

    def resume(self) -> tuple[int, int]:
        """(epoch, step) for a run that goes on from here."""
        return (self.epoch + 1, 0) if self.ended else (self.epoch, self.step)

    def state(self) -> dict[str, Any]:
        """What a snapshot holds of it."""
        return {"at": list(self.resume()), "total": self.total}

    def load(self, saved: dict[str, Any]) -> None:
        """Go on from what ``state`` gave."""
        self.epoch, self.step = saved["at"]
        self.total, self.ended = saved["total"], False
