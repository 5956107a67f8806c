"""How many more samples a larger global batch needs: E(B) = E0·(1 + B/Bc).

Source of the form: McCandlish et al., "An Empirical Model of Large-Batch Training", 2018. From two small batches it was
8.5 % off at 1.4 times the larger one, 15 % at 2 times, 33 % at 3 times: so 1.5 times is the end.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from rankup.errors import RankupError

FARTHEST = 1.5  # times the largest measured batch


@dataclass(frozen=True)
class BatchCost:
    """``floor``: E0, samples to the target with small batches. ``critical``: Bc, infinite if they cost nothing."""

    floor: float
    critical: float
    largest: float

    def samples(self, batch: float) -> float:
        """Samples to the target. Raises RankupError beyond ``FARTHEST`` times the largest measured batch."""
        if batch > FARTHEST * self.largest:
            raise RankupError(
                "batch-too-far",
                f"a global batch of {batch:,.0f} is {batch / self.largest:.1f} times the largest measured one, "
                f"{self.largest:,.0f}",
                hint=f"nobody can say how many samples it needs beyond {FARTHEST} times: measure it, at least once",
            )
        return self.floor * (1 + batch / self.critical)


def fit_batch_cost(pairs: Sequence[tuple[float, float]]) -> BatchCost:
    """From (global batch, samples to the target). Raises RankupError."""
    if len({batch for batch, _ in pairs}) < 2 or not all(
        math.isfinite(batch) and math.isfinite(samples) and batch > 0 and samples > 0
        for batch, samples in pairs
    ):
        raise RankupError(
            "bad-batches",
            "the samples to a target are needed for two global batches or more, all above zero",
            hint='--samples-to-target "256:1.2e6 512:1.3e6"',
        )
    n = len(pairs)
    mean_b, mean_e = (sum(pair[i] for pair in pairs) / n for i in (0, 1))
    slope = sum((b - mean_b) * (e - mean_e) for b, e in pairs) / sum((b - mean_b) ** 2 for b, _ in pairs)
    floor = mean_e - slope * mean_b
    largest = max(batch for batch, _ in pairs)
    if slope <= 0:  # larger batches needed no more: then none is assumed to
        return BatchCost(mean_e, math.inf, largest)
    if floor <= 0:
        raise RankupError(
            "bad-batches",
            "the samples to the target grow faster than the global batch",
            hint="a batch that large does not pay: use a smaller one",
        )
    return BatchCost(floor, floor / slope, largest)
