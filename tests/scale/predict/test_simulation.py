"""The simulation gives the closed form in its limits, and DDP's own buckets."""

from __future__ import annotations

import itertools
import math
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rankup.errors import RankupError
from rankup.scale.predict.buckets import CAP, FIRST, ddp_buckets
from rankup.scale.predict.fabrics import BETWEEN, INSIDE, fabric_link
from rankup.scale.predict.failures import best_interval, goodput
from rankup.scale.predict.links import Link, Links
from rankup.scale.predict.points import Size
from rankup.scale.predict.simulate import Reliability, Work, simulate, step_seconds

SLOW = Links(Link(3e-6, 200e9), Link(1e-5, 1e9))
WORK = Work(forward=0.1, backward=0.2, buckets=(10**6, 25 * 10**6, 25 * 10**6), batch=32, optimizer=0.01)
sizes = st.lists(st.integers(0, 40 * 1024 * 1024), max_size=40)


def test_one_device_only_computes():
    found = simulate(WORK, SLOW, Size(1, 1))
    assert (found.seconds, found.communication, found.exposed) == (pytest.approx(0.31), 0, 0)
    assert found.efficiency == 1
    assert found.rate == pytest.approx(32 / 0.31)


def test_one_device_waits_for_nothing_whatever_the_sizes_of_its_buckets():
    """Shares of a third, a seventh, … add up to a little more than the whole."""
    for sizes in itertools.combinations_with_replacement((1, 3, 7, 9_437_184, 26_214_400), 4):
        work = Work(forward=0.1 / 3, backward=0.2 / 3, buckets=sizes)
        assert simulate(work, SLOW, Size(1, 1)).exposed == 0


@pytest.mark.parametrize("nodes", [1, 2, 4096])
def test_infinite_bandwidth_without_latency_costs_nothing(nodes):
    found = simulate(WORK, Links(), Size(nodes, 8))
    assert found.seconds == pytest.approx(0.31)
    assert found.rate == pytest.approx(32 * 8 * nodes / 0.31)


@pytest.mark.parametrize("nodes", [1, 2, 64])
def test_without_computation_a_step_is_its_all_reduces(nodes):
    work = Work(0.0, 0.0, WORK.buckets)
    expected = sum(SLOW.allreduce(bucket, nodes, 8) for bucket in work.buckets)
    assert step_seconds(work, SLOW, Size(nodes, 8)) == pytest.approx((expected, expected, expected))


def test_an_all_reduce_is_hidden_until_the_last_bucket():
    """Two buckets of equal size: the first has half of the backward pass to hide in."""
    link = Links(between=Link(0, 1e9))
    work = Work(0.0, 2.0, (10**9, 10**9))
    assert step_seconds(work, link, Size(2, 1)) == pytest.approx((3.0, 2.0, 1.0))
    slower = Links(between=Link(0, 0.5e9))  # the second waits for the first
    assert step_seconds(work, slower, Size(2, 1)) == pytest.approx((5.0, 4.0, 3.0))


def test_a_step_waits_for_its_data_and_for_the_slowest():
    work = Work(0.1, 0.2, (10**6,), data=0.1, sigma=0.01)
    assert step_seconds(work, Links(), Size(1, 8))[0] == pytest.approx(
        0.8 + 0.01 * math.sqrt(2 * math.log(8))
    )


@given(sizes, st.integers(1, 4096), st.floats(0, 10))
def test_a_step_is_between_its_parts_and_their_sum(buckets, nodes, backward):
    work = Work(0.0, backward, tuple(buckets))
    seconds, communication, exposed = step_seconds(work, SLOW, Size(nodes, 8))
    assert max(backward, communication) <= seconds * (1 + 1e-9)
    assert seconds <= (backward + communication) * (1 + 1e-9)
    assert exposed <= communication * (1 + 1e-9)


@pytest.mark.parametrize(
    "bad", [{"forward": -1.0}, {"backward": math.nan}, {"batch": 0}, {"sigma": math.inf}]
)
def test_impossible_work_is_refused(bad):
    with pytest.raises(RankupError):
        Work(**{"forward": 0.1, "backward": 0.1, "buckets": (1,), **bad})


@given(sizes)
def test_buckets_hold_all_bytes_and_are_closed_as_soon_as_they_are_full(parameters):
    buckets = ddp_buckets(parameters)
    assert sum(buckets) == sum(parameters)
    assert all(
        size >= limit for size, limit in zip(buckets[:-1], [FIRST] + [CAP] * len(buckets), strict=False)
    )


def test_buckets_are_those_of_torch():
    import torch
    import torch.distributed as dist

    draw = random.Random(3)
    for _ in range(20):
        counts = [
            draw.choice([10, 1000, 300_000, 2_000_000, 9_000_000]) for _ in range(draw.randrange(1, 30))
        ]
        parameters = [torch.empty(count, device="meta") for count in reversed(counts)]
        indices, _ = dist._compute_bucket_assignment_by_size(parameters, [FIRST, CAP])
        expected = [sum(4 * parameters[i].numel() for i in bucket) for bucket in indices]
        assert ddp_buckets([4 * count for count in counts]) == expected


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
    found = [simulate(WORK, SLOW, Size(nodes, 8), reliability) for nodes in (1, 16, 1024)]
    assert found[0].goodput > found[1].goodput > found[2].goodput > 0
    assert found[0].interval > found[1].interval > found[2].interval


@pytest.mark.parametrize(("name", "table"), [(n, t) for t in (INSIDE, BETWEEN) for n in t])
def test_a_fabric_says_its_source_and_is_slower_than_its_line_rate(name, table):
    assert table[name].source
    assert table[name].link().beta < table[name].line_rate
    assert fabric_link(name, table, 4).beta == 4 * table[name].link().beta


def test_an_unknown_fabric_is_refused():
    with pytest.raises(RankupError, match="did you mean"):
        fabric_link("hrd", BETWEEN)
