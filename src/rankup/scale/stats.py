"""The statistics of few repeats: medians, ranges, intervals, and what they suffice to say. Nothing here knows where
numbers come from.

Times do not follow a bell curve: what disturbs a run only ever makes it slower. So the median represents a
configuration and the range its spread; nothing is averaged, nothing thrown away. An interval is returned only where
its level is reached: ``median_interval`` from six repeats on (exactly), ``ratio_interval`` from five on (measured).
"""

from __future__ import annotations

import random
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from math import comb, sqrt

LEVEL = 0.95
# Fewer runs than this of either configuration: times are printed, and no ratio.
ENOUGH_FOR_RATIO = 3
# The percentile bootstrap of a ratio of medians covers the truth in 90 % (3 repeats) and 92 to 94 % (4 repeats) of
# studies, and in 95 to 98 % from 5 on: normal, log-normal, skewed and spiky times (tests/scale/test_scale_stats.py).
ENOUGH_FOR_BOOTSTRAP = 5
RESAMPLES = 2000

Interval = tuple[float, float]


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


def ratio_range(numerator: Sample, denominator: Sample) -> Interval | None:
    """The least and the greatest ratio of any two of the measurements, which must be positive."""
    if not (numerator.tells_spread and denominator.tells_spread):
        return None
    return numerator.low / denominator.high, numerator.high / denominator.low


def median_interval(values: Sequence[float], level: float = LEVEL) -> Interval | None:
    """The narrowest pair of order statistics that holds the true median with probability ``level`` or more.

    Free of any assumption on the distribution: the k-th smallest of n lies above the median with the probability that
    fewer than k of n fair coins show heads. None if even minimum and maximum do not reach the level: 5 values reach
    93.75 %, 6 reach 96.9 %.
    """
    n = len(values)
    outside, k = 0.0, 0
    while 2 * (outside + comb(n, k) / 2**n) <= 1 - level:
        outside += comb(n, k) / 2**n
        k += 1
    if k == 0:
        return None
    ordered = sorted(values)
    return ordered[k - 1], ordered[n - k]


def ratio_interval(
    numerator: Sequence[float], denominator: Sequence[float], level: float = LEVEL
) -> Interval | None:
    """A bootstrap interval of median / median: the percentiles of the ratios of resampled medians.

    Always the same for the same numbers (the seed is fixed). None where a side has fewer than
    ``ENOUGH_FOR_BOOTSTRAP`` values: its level would not be reached.
    """
    if min(len(numerator), len(denominator)) < ENOUGH_FOR_BOOTSTRAP:
        return None
    return percentile_bootstrap(numerator, denominator, level)


def percentile_bootstrap(numerator: Sequence[float], denominator: Sequence[float], level: float) -> Interval:
    """``ratio_interval`` for any number of values, whether its level is reached or not."""
    source = random.Random(0)
    above, below = (_resampled_medians(values, source) for values in (numerator, denominator))
    ratios = sorted(a / b for a, b in zip(above, below, strict=True))
    cut = round(RESAMPLES * (1 - level) / 2)
    return ratios[cut], ratios[-cut - 1]


def _resampled_medians(values: Sequence[float], source: random.Random) -> list[float]:
    medians, weights = _bootstrap_distribution(values)
    return source.choices(medians, cum_weights=list(accumulate(weights)), k=RESAMPLES)


def _bootstrap_distribution(values: Sequence[float]) -> tuple[list[float], list[float]]:
    """Each median that a resample of ``values`` may have, and how often it does: exact, and faster than resampling.

    With n = 2m + 1 values the median is one of them. With n = 2m it is the mean of the i-th and the j-th smallest: of
    n draws m lie at or below i with the greatest at i, and m at or above j with the least at j.
    """
    ordered, n = sorted(values), len(values)
    m = n // 2

    def at_most(i: int, rank: int) -> float:
        """How often the ``rank``-th smallest of n draws is at most the ``i``-th value (both from 1)."""
        share = i / n
        return sum(comb(n, k) * share**k * (1 - share) ** (n - k) for k in range(rank, n + 1))

    if n % 2:
        cumulated = [at_most(i, m + 1) for i in range(n + 1)]
        return ordered, [later - earlier for earlier, later in pairwise(cumulated)]
    medians, weights = [], []
    for i in range(1, n + 1):
        rest = at_most(i, m) - at_most(i - 1, m)
        for j in range(n, i, -1):
            weight = comb(n, m) * (i**m - (i - 1) ** m) * ((n - j + 1) ** m - (n - j) ** m) / n**n
            medians.append((ordered[i - 1] + ordered[j - 1]) / 2)
            weights.append(weight)
            rest -= weight
        medians.append(ordered[i - 1])
        weights.append(max(rest, 0.0))
    return medians, weights


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


def median_error(values: Sequence[float]) -> float:
    """The standard error of the median of repeats, from their spread; 0 where fewer than three tell none.

    1.2533 is the error of a median relative to that of a mean, for a normal distribution.
    """
    return 1.2533 * statistics.stdev(values) / sqrt(len(values)) if len(values) >= 3 else 0.0
