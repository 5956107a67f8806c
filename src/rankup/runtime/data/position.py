"""Where the training on one data set is."""

from __future__ import annotations

from typing import Any

from rankup.runtime.data.portions import NONE, Portion


class Position:
    """The epoch in progress and how many of its steps are done. With the seed, a resume needs nothing else of the data.

    A step counts as done once its last batch is handed out: in the loop's body, take the state after ``opt.step()``.
    ``total`` counts the steps of all epochs. ``ended`` is True while the code after the inner loop runs: a state taken
    there counts the epoch as finished, so that this code does not run again.
    """

    def __init__(self) -> None:
        self.epoch = 0
        self.ended = False
        self._step = self._total = 0  # without those of ``portion``
        self.portion: Portion = NONE  # that the loop gives now

    @property
    def step(self) -> int:
        return self._step + self.portion.handed

    @property
    def total(self) -> int:
        return self._total + self.portion.handed

    def advance(self, steps: int) -> None:
        """So many steps are done. The portion, if it gave them, is over."""
        self._step, self._total, self.portion = self._step + steps, self._total + steps, NONE

    def go_to(self, epoch: int, step: int) -> None:
        """Without the steps between."""
        self.epoch, self._step = epoch, step

    def end_epoch(self) -> None:
        """The code after the inner loop has run, too."""
        self.epoch, self._step, self.ended = self.epoch + 1, 0, False

    def resume(self) -> tuple[int, int]:
        """(epoch, step) for a run that resumes from here."""
        return (self.epoch + 1, 0) if self.ended else (self.epoch, self.step)

    def state(self) -> dict[str, Any]:
        """What a snapshot contains of it."""
        return {"at": list(self.resume()), "total": self.total}

    def load(self, saved: dict[str, Any]) -> None:
        """Restore what ``state`` gave."""
        self.epoch, self._step = saved["at"]
        self._total, self.ended = saved["total"], False
