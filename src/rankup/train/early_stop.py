"""Early stop: training ends when the model is as good as asked for, and not by one lucky epoch."""

from __future__ import annotations


class EarlyStop:
    """Reached when the test accuracy was ``target`` or better in ``patience`` epochs in a row; never without a target.

    The accuracy is that of all ranks, so all of them stop at the same epoch. Its state belongs to the run's, so that a
    resume in the middle of a row goes on counting.
    """

    def __init__(self, target: float | None, patience: int) -> None:
        self._target = target
        self._patience = patience
        self._in_a_row = 0

    def epoch_ended(self, accuracy: float) -> None:
        """``accuracy`` in [0, 1]."""
        met = self._target is not None and accuracy >= self._target
        self._in_a_row = self._in_a_row + 1 if met else 0

    @property
    def reached(self) -> bool:
        return self._target is not None and self._in_a_row >= self._patience

    def state_dict(self) -> dict[str, int]:
        return {"in_a_row": self._in_a_row}

    def load_state_dict(self, state_dict: dict[str, int]) -> None:
        self._in_a_row = state_dict["in_a_row"]
