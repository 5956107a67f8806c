"""Early stop: training ends when the test accuracy has reached the target in several epochs in a row."""

from __future__ import annotations


class EarlyStop:
    """Reached when the test accuracy was at least ``target`` in ``patience`` epochs in a row; never without a target.

    The accuracy is that of all ranks, so all ranks stop at the same epoch. The count is registered, so a resume
    continues it.
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
