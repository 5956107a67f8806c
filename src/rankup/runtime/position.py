"""Where training on one feed stands."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass
class Position:
    """The epoch in progress and the steps of it that are done: with the seed, all that a resume needs of the data.

    ``step`` counts a step as done from the moment its last batch is handed out: state taken in the loop's body is
    meant to be taken after ``opt.step()``. ``ended`` is True while the code behind the inner loop runs: state taken
    there counts the epoch as finished, so that this code is not run again.
    """

    epoch: int = 0
    step: int = 0
    ended: bool = False

    def resume(self) -> tuple[int, int]:
        """(epoch, step) for a run that goes on from here."""
        return (self.epoch + 1, 0) if self.ended else (self.epoch, self.step)
