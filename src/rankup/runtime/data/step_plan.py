"""How one epoch is cut into steps."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch


class StepPlan(NamedTuple):
    """One epoch. ``order``: int64 (samples,), their numbers in the data set; step ``k`` has those from ``starts[k]`` to
    ``starts[k + 1]``. ``keys``: int64 (samples,), what each sample's random numbers are keyed on."""

    order: torch.Tensor
    starts: Sequence[int]
    keys: torch.Tensor

    @property
    def steps(self) -> int:
        return len(self.starts) - 1

    def first(self, steps: int | None) -> StepPlan:
        """Its first ``steps`` steps; None: all of them."""
        return self if steps is None else self._replace(starts=self.starts[: steps + 1])

    def total(self, step: int) -> int:
        """Samples in global batch ``step``."""
        return self.starts[step + 1] - self.starts[step]


def cuts(length: int, global_batch: int, *, drop_last: bool) -> Sequence[int]:
    """Where the steps of an epoch of ``length`` samples begin, and where the last one ends."""
    whole = range(0, length + 1, global_batch)
    return whole if drop_last or length % global_batch == 0 else [*whole, length]
