"""Which size to ask for."""

from __future__ import annotations

from synthetic_curves import curve, machine

from rankup.scale.predict.points import Size
from rankup.scale.predict.prediction import predict_next
from rankup.scale.predict.recommend import choices, recommend

POINTS = curve(machine(beta=2e9), [Size(1, 1), Size(1, 8), Size(2, 8)])
LARGER = [predict_next(POINTS, Size(n, 8)) for n in (4, 8)]


def among(samples: float | None):
    return choices(POINTS, LARGER, samples)


def test_the_smallest_size_in_time_is_sure_where_its_slow_end_is_in_time():
    table = among(1e6)
    by_size = {one.size: one for one in table}
    slow = by_size[Size(4, 8)].slow_hours * 3600
    assert recommend(table, slow * 1.001).smallest_in_time.size == Size(4, 8)
    assert not recommend(table, slow * 1.001).likely
    assert recommend(table, by_size[Size(2, 8)].hours * 3600 * 1.001).smallest_in_time.size == Size(2, 8)


def test_a_deadline_that_only_the_prediction_meets_is_likely():
    table = among(1e6)
    fastest = table[-1]
    found = recommend(table, (fastest.hours + fastest.slow_hours) / 2 * 3600)
    assert (found.smallest_in_time, found.likely) == (fastest, True)


def test_no_size_is_in_time_for_an_impossible_deadline():
    found = recommend(among(1e6), 1.0)
    assert found.smallest_in_time is None
    assert found.cheapest is None


def test_the_cheapest_is_no_less_efficient_than_the_floor():
    table = among(1e6)
    found = recommend(table, min_efficiency=0.9)
    assert found.cheapest.size == found.most_efficient.size == Size(1, 1)
    deadline = table[1].hours * 3600 * 1.001
    assert recommend(table, deadline, 0.0).cheapest.size == Size(1, 8)
    assert recommend(table, table[2].hours * 3600 * 1.001, 0.999).cheapest is None


def test_without_samples_there_are_no_times():
    found = recommend(among(None))
    assert found.cheapest is None
    assert found.fastest.size == Size(8, 8)
