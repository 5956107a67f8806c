"""The statistics of few repeats: medians, ranges, and what they suffice to say. Nothing here knows where numbers
come from.

Times are no bell curves: what disturbs a run only ever makes it slower. So the median stands for a version and the
range for its spread; nothing is averaged, nothing thrown away.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from math import comb, sqrt


@dataclass(frozen=True)
class Sample:
    """Some measurements of the same thing, at least one: their number, median, least and greatest."""

    count: int
    median: float
    low: float
    high: float

    @classmethod
    def of(cls, values: Sequence[float]) -> Sample:
        return cls(len(values), statistics.median(values), min(values), max(values))

    @property
    def tells_spread(self) -> bool:
        """One measurement says nothing of how far the next would be from it."""
        return self.count > 1


def overlap(a: Sample, b: Sample) -> bool | None:
    """Whether the ranges have a point in common: then the difference is within the noise. None: nobody knows."""
    if not (a.tells_spread and b.tells_spread):
        return None
    return a.low <= b.high and b.low <= a.high


def ratio_range(numerator: Sample, denominator: Sample) -> tuple[float, float] | None:
    """The least and the greatest ratio of any two of the measurements, which must be positive."""
    if not (numerator.tells_spread and denominator.tells_spread):
        return None
    return numerator.low / denominator.high, numerator.high / denominator.low


def chance_apart(a: int, b: int) -> float:
    """How often ``a`` and ``b`` measurements of one and the same speed fall into two ranges that do not overlap.

    All orders of a + b equal measurements are equally likely, and in two of them one group lies wholly below the
    other. 3 and 3: 10 %; 4 and 4: 3 %; 5 and 5: 0.8 %.
    """
    return 2 / comb(a + b, a)


def accuracy_error(first: float, second: float, samples: int) -> float:
    """The standard error of the difference of two accuracies in [0, 1], each counted on ``samples`` test samples.

    Binomial, from the pooled share of right answers, to which two right and two wrong ones are added (Agresti and
    Coull): without them the error of 100 % of a small test set would be 0.
    """
    pooled = ((first + second) * samples + 2) / (2 * samples + 4)
    return sqrt(2 * pooled * (1 - pooled) / samples)
