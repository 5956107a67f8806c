"""Few numbers, and what they suffice to say."""

from __future__ import annotations

import itertools
import random
import statistics
from collections import Counter
from math import exp, log, sqrt

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rankup.scale.stats import (
    LEVEL,
    Sample,
    _bootstrap_distribution,
    accuracy_error,
    chance_apart,
    median_error,
    median_interval,
    overlap,
    percentile_bootstrap,
    ratio_interval,
    ratio_range,
)

times = st.lists(st.floats(1e-3, 1e6), min_size=1, max_size=9)


@given(times)
def test_a_sample_keeps_median_and_range_whatever_the_order(values):
    sample = Sample.of(values)
    assert sample == Sample.of(values[::-1])
    assert sample.low == min(values) <= sample.median <= max(values) == sample.high


@given(times, times)
def test_the_ratio_range_holds_every_ratio_of_two_measurements(first, second):
    found = ratio_range(Sample.of(first), Sample.of(second))
    if min(len(first), len(second)) == 1:
        assert found is None
    else:
        low, high = found
        assert all(low <= a / b <= high for a in first for b in second)


@given(times, times)
def test_ranges_overlap_unless_all_of_one_lie_below_all_of_the_other(first, second):
    found = overlap(Sample.of(first), Sample.of(second))
    if min(len(first), len(second)) == 1:
        assert found is None
    else:
        assert found is not (max(first) < min(second) or max(second) < min(first))
        assert found is overlap(Sample.of(second), Sample.of(first))


@pytest.mark.parametrize(("a", "b"), [(1, 1), (2, 2), (2, 3), (3, 3), (4, 4)])
def test_the_chance_of_ranges_apart_is_the_share_among_all_orders(a, b):
    choices = list(itertools.combinations(range(a + b), a))
    apart = [c for c in choices if c in (tuple(range(a)), tuple(range(b, a + b)))]
    assert chance_apart(a, b) == pytest.approx(len(apart) / len(choices))


def test_the_error_of_an_accuracy_shrinks_with_more_test_samples_and_is_never_nothing():
    assert accuracy_error(0.97, 0.97, 360) == pytest.approx(0.0130, abs=0.0005)
    assert accuracy_error(0.9, 0.9, 10_000) == pytest.approx(0.00424, abs=0.0001)
    assert 0 < accuracy_error(1.0, 1.0, 10_000) < accuracy_error(1.0, 1.0, 360)


TRUTHS = {
    "normal": (lambda source: source.gauss(10, 0.3), 10.0),
    "log-normal": (lambda source: 10 * exp(source.gauss(0, 0.2)), 10.0),
    "skewed": (lambda source: 10 + source.expovariate(1), 10 + log(2)),
}
DRAWS = 1000
# Two standard errors of a share of 95 % in 1,000 draws.
TOLERANCE = 2 * sqrt(0.95 * 0.05 / DRAWS)


def covered(kind, count, interval_of):
    """The share of 1,000 studies whose interval, made from two samples of ``count`` times, holds the truth.

    ``interval_of`` gets times of a distribution and times of the same one, twice as fast: the true ratio is 2.
    """
    draw, median = TRUTHS[kind]
    source = random.Random(f"{kind} {count}")
    hits = 0
    for _ in range(DRAWS):
        slow = [draw(source) for _ in range(count)]
        fast = [draw(source) / 2 for _ in range(count)]
        (low, high), truth = interval_of(slow, fast, median)
        hits += low <= truth <= high
    return hits / DRAWS


@pytest.mark.parametrize("kind", TRUTHS)
@pytest.mark.parametrize("count", [6, 20])
def test_the_interval_of_a_median_covers_the_truth_as_often_as_it_says(kind, count):
    assert covered(kind, count, lambda slow, _, median: (median_interval(slow), median)) >= LEVEL - TOLERANCE


FEW = [("normal", 5), ("skewed", 12)]  # the campaign has the others
RATIOS = [
    pytest.param(kind, count, marks=[] if (kind, count) in FEW else pytest.mark.campaign)
    for kind in TRUTHS
    for count in (5, 12)
]


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "count"), RATIOS)
def test_the_interval_of_a_ratio_covers_the_truth_as_often_as_it_says(kind, count):
    assert covered(kind, count, lambda slow, fast, _: (ratio_interval(slow, fast), 2)) >= LEVEL - TOLERANCE


@pytest.mark.slow
@pytest.mark.parametrize("count", [pytest.param(3, marks=pytest.mark.campaign), 4])
def test_a_bootstrap_of_fewer_repeats_does_not_reach_its_level_and_is_not_given(count):
    share = covered("normal", count, lambda slow, fast, _: (percentile_bootstrap(slow, fast, LEVEL), 2))
    assert share < LEVEL
    assert ratio_interval([10.0] * count, [5.0] * 20) is None
    assert ratio_interval([10.0] * 20, [5.0] * count) is None


def test_order_statistics_give_no_interval_below_six_repeats():
    assert median_interval([1, 2, 3, 4, 5]) is None
    assert median_interval([6, 1, 5, 2, 4, 3]) == (1, 6)
    assert median_interval(range(1, 10)) == (2, 8)
    assert median_interval([1, 2, 3, 4, 5], level=0.9) == (1, 5)


@pytest.mark.parametrize("values", [[1.0, 2.0, 4.0], [1.0, 2.0, 4.0, 8.0], [3.0, 1.0, 2.0, 9.0, 5.0]])
def test_the_bootstrap_counts_what_resampling_would_draw(values):
    resamples = list(itertools.product(values, repeat=len(values)))
    drawn = Counter(statistics.median(resample) for resample in resamples)
    counted = Counter()
    for median, weight in zip(*_bootstrap_distribution(values), strict=True):
        counted[median] += weight
    assert counted == pytest.approx({median: n / len(resamples) for median, n in drawn.items()})


@given(
    st.lists(st.floats(0.1, 1e3), min_size=5, max_size=12),
    st.lists(st.floats(0.1, 1e3), min_size=5, max_size=12),
)
def test_an_interval_lies_within_the_range_and_is_the_same_each_time(first, second):
    low, high = ratio_interval(first, second)
    least, greatest = ratio_range(Sample.of(first), Sample.of(second))
    assert least * (1 - 1e-9) <= low <= high <= greatest * (1 + 1e-9)
    assert (low, high) == ratio_interval(first, second)


def test_the_error_of_a_median_needs_three_repeats():
    assert median_error([0.9, 0.8]) == 0
    assert median_error([0.9, 0.8, 0.85]) == pytest.approx(1.2533 * 0.05 / sqrt(3))
