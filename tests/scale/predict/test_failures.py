"""How often to save, and what is left of the time."""

from __future__ import annotations

import math
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rankup.scale.predict.failures import Reliability, best_interval, goodput


def test_young_and_daly_in_their_limits():
    assert best_interval(10, 1e6) == pytest.approx(math.sqrt(2 * 10 * 1e6), rel=0.01)
    assert best_interval(100, 40) == 40
    assert best_interval(10, math.inf) == math.inf
    assert best_interval(0, 1e6) == 0
    assert goodput(math.inf, 10, 300, math.inf) == 1
    assert goodput(90, 10, 300, math.inf) == pytest.approx(0.9)
    assert goodput(1e5, 10, 300, 10) == 0


@given(st.floats(1, 600), st.floats(1e4, 1e7))
def test_no_other_interval_gives_clearly_more(save, between_failures):
    best = best_interval(save, between_failures)
    most = goodput(best, save, 300, between_failures)
    for factor in (0.5, 0.8, 1.25, 2.0):
        assert goodput(best * factor, save, 300, between_failures) <= most * 1.001


def test_goodput_is_what_random_failures_leave():
    """Simulated failure by failure: 20,000 intervals."""
    draw = random.Random(1)
    interval, save, restart, mtbf = 500.0, 20.0, 600.0, 3000.0
    clock, left = 0.0, draw.expovariate(1 / mtbf)
    for _ in range(20_000):
        wanted = interval + save
        while left < wanted:
            clock += left
            left, wanted = draw.expovariate(1 / mtbf), interval + save + restart
        clock, left = clock + wanted, left - wanted
    assert goodput(interval, save, restart, mtbf) == pytest.approx(interval * 20_000 / clock, rel=0.03)


def test_more_nodes_fail_more_often():
    reliability = Reliability(node_mtbf=1e6, save=10, restart=300)
    found = [(reliability.interval(nodes), reliability.goodput(nodes)) for nodes in (1, 16, 1024)]
    assert found == sorted(found, reverse=True)
    assert found[-1][1] > 0
