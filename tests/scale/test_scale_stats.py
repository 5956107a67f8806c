"""Few numbers, and what they suffice to say."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rankup.scale.stats import Sample, accuracy_error, chance_apart, overlap, ratio_range

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
