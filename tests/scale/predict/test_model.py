"""Links, the whole model of a step, batches, recommendations."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from synthetic_curves import curve, machine

from rankup.errors import RankupError
from rankup.scale.predict.batch_cost import fit_batch_cost
from rankup.scale.predict.links import (
    FREE,
    RING,
    TREE,
    Link,
    Links,
    fit_link,
    hops,
    read_links,
    volume,
    write_links,
)
from rankup.scale.predict.points import Point, Size
from rankup.scale.predict.prediction import predict_next
from rankup.scale.predict.recommend import choices, recommend
from rankup.scale.predict.step_model import StepModel, fit_step_model, overlapped, straggle


def test_an_all_reduce_in_its_limits():
    link = Link(1e-5, 1e9)
    assert link.allreduce(10**9, 1) == 0
    assert link.allreduce(0, 2) == pytest.approx(2e-5)
    assert link.allreduce(10**9, 2) == pytest.approx(1 + 2e-5)
    assert FREE.allreduce(10**9, 1000) == 0
    assert [hops(n, RING) for n in (1, 2, 3, 8)] == [0, 2, 4, 14]
    assert [hops(n, TREE) for n in (1, 2, 3, 8)] == [0, 2, 4, 6]
    assert all(hops(n) == min(hops(n, RING), hops(n, TREE)) for n in range(1, 100))
    assert volume(10**6) == pytest.approx(2, rel=1e-5)


@given(st.floats(1e-7, 1e-3), st.floats(1e6, 1e12), st.integers(2, 64))
def test_a_sweep_gives_back_the_link_that_made_it(alpha, beta, devices):
    link = Link(alpha, beta)
    sizes = (1e3, 1e5, 1e7, 1e9)
    found = fit_link([(m, link.allreduce(m, devices, RING)) for m in sizes], devices, RING)
    for m in sizes:
        assert found.allreduce(m, devices, RING) == pytest.approx(link.allreduce(m, devices, RING), rel=1e-3)


def test_a_link_without_latency_has_none():
    assert fit_link([(1e6, 0.5e-3), (1e8, 0.1)], 2).alpha == 0


@pytest.mark.parametrize(
    "pairs",
    [[], [(1e6, 1.0)], [(1e6, 1.0), (1e6, 1.1)], [(1e6, 1.0), (1e7, math.nan)], [(1e6, 1.0), (1e7, 0.1)]],
)
def test_a_sweep_that_tells_nothing_is_refused(pairs):
    with pytest.raises(RankupError) as caught:
        fit_link(pairs, 2)
    assert caught.value.code == "bad-sweep"


def test_links_are_read_as_they_were_written(tmp_path):
    links = Links(Link(1e-6, 1e9), FREE, RING)
    write_links(links, tmp_path / "links.json")
    assert read_links(tmp_path / "links.json") == links


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"inside": {"alpha": 1}, "between": null}', "null"])
def test_a_file_that_holds_no_links_is_refused(tmp_path, text):
    (tmp_path / "links.json").write_text(text)
    with pytest.raises(RankupError, match="cannot read links"):
        read_links(tmp_path / "links.json")


def test_overlap_and_stragglers_in_their_limits():
    assert overlapped(2, 3, 1) == 5
    assert overlapped(2, 3, 1000) == pytest.approx(3)
    assert overlapped(0, 0, 2) == 0
    assert overlapped(1e-300, 1e300, 10) == 1e300
    assert straggle(1.0, 1) == 0
    assert straggle(1.0, 1024) == pytest.approx(3.72, abs=0.01)


def measured(model: StepModel, sizes: list[Size]) -> list[Point]:
    """With the parts as they are measured: what data and communication add to the rest."""
    points = []
    for point in curve(model, sizes):
        together = overlapped(model.compute, model.communication(point.size), model.gamma)
        parts = {
            "data": max(model.data_per_device * point.size.per_node - together, 0.0),
            "compute": model.compute,
            "communication": together - model.compute,
            "optimizer": model.optimizer,
        }
        points.append(replace(point, parts=parts, batch=32 * point.size.devices))
    return points


@pytest.mark.parametrize("gamma", [1.0, 2.5, 6.0])
def test_the_whole_model_finds_the_overlap_and_predicts_latency_too(gamma):
    model = replace(machine(alpha=1e-3), gamma=gamma, optimizer=0.005)
    points = measured(model, [Size(1, 8), Size(2, 8)])
    found = fit_step_model(points, model.buckets, model.links)
    assert found.gamma == pytest.approx(gamma, rel=0.02)
    assert found.seconds(Size(16, 8)) == pytest.approx(model.seconds(Size(16, 8)), rel=0.01)


def test_data_that_does_not_keep_up_ends_the_gain_of_more_devices():
    model = replace(machine(), data_per_device=0.05)
    assert model.seconds(Size(1, 8)) == pytest.approx(0.4)
    assert model.seconds(Size(1, 1)) < 0.15


def test_a_node_that_waits_for_its_data_does_so_on_more_nodes_and_not_with_fewer_devices():
    model = replace(machine(), data_per_device=0.05)
    points = measured(model, [Size(1, 8), Size(2, 8)])
    found = fit_step_model(points, model.buckets, model.links)
    for size in (Size(1, 1), Size(4, 8), Size(64, 8)):
        assert found.seconds(size) == pytest.approx(model.seconds(size), rel=0.01)


def test_without_measured_parts_there_is_no_whole_model():
    with pytest.raises(RankupError) as caught:
        fit_step_model(curve(machine(), [Size(1, 8), Size(2, 8)]), [1000], Links())
    assert caught.value.code == "no-breakdown"


def test_larger_batches_cost_samples_and_too_large_ones_are_refused():
    cost = fit_batch_cost([(256, 1e6 * (1 + 256 / 1000)), (512, 1e6 * (1 + 512 / 1000))])
    assert cost.samples(768) == pytest.approx(1e6 * 1.768)
    with pytest.raises(RankupError, match=r"is 1\.6 times the largest"):
        cost.samples(800)


def test_batches_that_cost_nothing_cost_nothing():
    assert fit_batch_cost([(256, 1e6), (512, 0.9e6)]).samples(768) == pytest.approx(0.95e6)


@pytest.mark.parametrize("pairs", [[], [(1, 1)], [(1, 1), (1, 2)], [(1, math.nan), (2, 1)], [(1, 1), (2, 9)]])
def test_batches_that_tell_nothing_are_refused(pairs):
    with pytest.raises(RankupError) as caught:
        fit_batch_cost(pairs)
    assert caught.value.code == "bad-batches"


POINTS = curve(machine(beta=2e9), [Size(1, 1), Size(1, 8), Size(2, 8)])
LARGER = [predict_next(POINTS, Size(n, 8)) for n in (4, 8)]


def among(samples: float | None):
    return choices(POINTS, LARGER, [samples] * 5)


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
