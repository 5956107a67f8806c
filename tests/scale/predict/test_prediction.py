"""The reduced form: exact where it is true, near on published curves, and silent where nobody can say."""

from __future__ import annotations

import csv
import math
import random
import statistics
from pathlib import Path

import pytest
from benchmarks.published_curves import CURVES
from synthetic_curves import curve, machine

from rankup.errors import RankupError
from rankup.scale.predict import interval
from rankup.scale.predict.points import Point, Size, parse_points, size_of
from rankup.scale.predict.prediction import predict_next, score

HELD_BACK = Path(__file__).parents[3] / "benchmarks" / "held_back_curves.csv"
FOUR = Size(4, 8)
SMALL = [Size(1, 1), Size(1, 4), Size(1, 8), Size(2, 8)]


def errors(curves=CURVES):
    return [score(predict_next(one.points(16), FOUR), one.rates[-1]) for one in curves]


def test_it_is_exact_for_a_machine_whose_all_reduce_is_a_ring_without_latency():
    model = machine(alpha=0.0)
    found = predict_next(curve(model, SMALL), FOUR)
    assert found.rate == pytest.approx(32 * 32 / model.seconds(FOUR), rel=1e-9)


def test_within_a_node_it_needs_no_second_node():
    model = machine()
    found = predict_next(curve(model, [Size(1, 1), Size(1, 2), Size(1, 4)]), Size(1, 8))
    assert found.rate == pytest.approx(32 * 8 / model.seconds(Size(1, 8)), rel=1e-3)


def test_a_fixed_batch_is_predicted_from_three_sizes():
    def rate(size: Size) -> float:
        return 1 / (1 / size.devices + 0.01 * (size.devices > 1) + 0.02 * 2 * (size.nodes - 1) / size.nodes)

    points = [Point(size, rate(size)) for size in SMALL]
    assert predict_next(points, FOUR, "strong").rate == pytest.approx(rate(FOUR), rel=1e-6)
    with pytest.raises(RankupError, match="3 are needed"):
        predict_next(points[2:], FOUR, "strong")


def test_published_curves_are_met():
    found = errors()
    assert statistics.mean(abs(one.error) for one in found) <= 0.04
    assert max(abs(one.error) for one in found) <= 0.08
    assert statistics.mean(abs(one.error) for one in found) < statistics.mean(
        abs(s.linear_error) for s in found
    )
    assert sum(one.within for one in found) >= 7


@pytest.mark.parametrize("setup", sorted({one.setup for one in CURVES}))
def test_an_interval_made_without_a_setup_holds_that_setup(monkeypatch, setup):
    """Three setups give the width, with Student's t of three degrees of freedom; the fourth is predicted."""
    others = [one for one in CURVES if one.setup != setup]
    squares = [math.log1p(one.error) ** 2 for one in errors(others)]
    noise = 1.58 * 0.008
    monkeypatch.setattr(interval, "MODEL_ERROR", math.sqrt(statistics.mean(squares) - noise**2))
    monkeypatch.setattr(interval, "T_QUANTILE", 2.353)
    assert all(one.within for one in errors([one for one in CURVES if one.setup == setup]))


def test_the_error_of_the_model_is_that_of_the_curves():
    squares = [math.log1p(one.error) ** 2 for one in errors()]
    assert math.sqrt(statistics.mean(squares)) == pytest.approx(
        math.hypot(interval.MODEL_ERROR, 1.58 * 0.008), rel=0.01
    )


@pytest.mark.slow
def test_the_interval_covers_as_often_as_it_says():
    """1,000 machines that miss the form as the curves do, by a scale that four setups leave uncertain."""
    draw = random.Random(5)
    held = 0
    for _ in range(1000):
        model = machine(alpha=0.0, beta=draw.uniform(1e9, 2e10))
        points = curve(model, SMALL, noise=0.008, seed=draw.randrange(1 << 30))
        chi = sum(draw.gauss(0, 1) ** 2 for _ in range(4))
        scale = interval.MODEL_ERROR * math.sqrt(4 / chi)
        truth = 32 * 32 / model.seconds(FOUR) * math.exp(draw.gauss(0, scale))
        held += score(predict_next(points, FOUR), truth).within
    # Four standard errors of 1,000 draws are 3.8 points; a whole interval has a little more than the model's part.
    assert 0.86 <= held / 1000 <= 0.95


@pytest.mark.parametrize("sigma", [0.0, 0.002])
def test_the_interval_holds_machines_with_latency_and_stragglers(sigma):
    draw = random.Random(7)
    held = 0
    for _ in range(300):
        model = machine(alpha=draw.uniform(5e-6, 1e-4), beta=draw.uniform(2e9, 2e10), sigma=sigma)
        points = curve(model, SMALL, noise=0.008, seed=draw.randrange(1 << 30))
        held += score(predict_next(points, FOUR), 32 * 32 / model.seconds(FOUR)).within
    assert held / 300 >= 0.9


def test_more_points_narrow_it_and_distance_widens_it():
    points = curve(machine(), [*SMALL, FOUR])

    def width(found) -> float:
        return math.log(found.high / found.low)

    eight = Size(8, 8)
    assert width(predict_next(points, eight)) < width(predict_next(points[:-1], eight))
    assert width(predict_next(points, Size(16, 8))) > width(predict_next(points, eight))


def test_one_node_alone_is_refused_with_what_to_measure():
    with pytest.raises(RankupError) as caught:
        predict_next(parse_points("1:100 4:390 8:770", 8), FOUR)
    assert caught.value.code == "no-node-boundary"
    assert caught.value.hint.startswith("measure 2 × 8;")


def test_two_nodes_are_to_be_measured_and_not_predicted():
    with pytest.raises(RankupError) as caught:
        predict_next(parse_points("1:100 2:190", 4), Size(2, 4))
    assert caught.value.code == "no-node-boundary"
    assert caught.value.hint.startswith("measure 1 × 4 and 2 × 4;")


def test_two_nodes_alone_are_refused():
    with pytest.raises(RankupError, match="do not cross from one node"):
        predict_next(parse_points("1:100 4:390 16:1500", 8), FOUR)


def test_nodes_with_fewer_devices_tell_nothing_about_full_ones():
    with pytest.raises(RankupError, match="do not cross from one node"):
        predict_next(parse_points("1x1:100 2x1:190 1x8:770", None), FOUR)


@pytest.mark.parametrize("scaling", ["weak", "strong"])
def test_one_point_is_refused(scaling):
    with pytest.raises(RankupError) as caught:
        predict_next(parse_points("8:100", 8), FOUR, scaling)
    assert caught.value.code == "one-point"
    assert "2 × 8" in caught.value.hint


def test_another_kind_of_scaling_is_refused():
    with pytest.raises(RankupError, match="is not a kind of scaling"):
        predict_next(parse_points("8:100 16:190", 8), FOUR, "medium")


def codes(text: str, size: Size = FOUR) -> list[str]:
    return [finding.code for finding in predict_next(parse_points(text, 8), size).findings]


def test_what_is_odd_about_the_points_is_said():
    assert codes("8:770 16:1500") == []
    assert codes("8:770 16:700") == ["slower-with-more"]
    assert codes("4:1079 8:1070 16:2093") == ["node-limit"]
    assert codes("8:770 16:1700") == ["superlinear"]


def test_two_nodes_faster_than_twice_one_are_predicted_as_linear():
    found = predict_next(parse_points("8:770 16:1700", 8), FOUR)
    assert found.rate == pytest.approx(found.linear) == 3400


def test_beyond_four_times_the_largest_size_nobody_can_say():
    points = parse_points("8:770 16:1500", 8)
    assert predict_next(points, Size(8, 8)).rate > 5000
    with pytest.raises(RankupError) as caught:
        predict_next(points, Size(9, 8))
    assert caught.value.code == "too-far"
    assert caught.value.hint.startswith("measure 24 devices or more")


@pytest.mark.parametrize("scaling", ["weak", "strong"])
def test_two_sizes_of_a_node_do_not_tell_how_far_to_trust_them(scaling):
    with pytest.raises(RankupError, match="2 of the measurements tell about it, and 3 are needed"):
        predict_next(parse_points("1:100 4:380", 8), Size(1, 8), scaling)


def test_within_a_node_the_interval_has_the_error_of_its_own_points():
    steady = predict_next(parse_points("1:100 2:196 4:388", 8), Size(1, 8))
    bends = predict_next(parse_points("1:100 2:196 4:340", 8), Size(1, 8))
    assert steady.high / steady.low < 1.25
    assert bends.high / bends.low > 1.8


def held_back(measured: tuple[int, ...], target: int) -> list[bool]:
    """Whether the interval held each of the published curves that had no part in its making."""
    found = []
    for row in csv.DictReader(HELD_BACK.read_text().splitlines()):
        if all(row[str(count)] for count in (*measured, target)):
            points = parse_points(" ".join(f"{count}:{row[str(count)]}" for count in measured), 8)
            rate = float(row[str(target)])
            found.append(score(predict_next(points, size_of(str(target), 8)), rate).within)
    return found


@pytest.mark.parametrize(("measured", "target"), [((8, 16), 32), ((1, 2, 4), 8)])
def test_the_interval_holds_published_curves_that_had_no_part_in_it(measured, target):
    held = held_back(measured, target)
    assert len(held) >= 30
    assert sum(held) / len(held) >= 0.85


def test_a_score_needs_a_rate():
    found = predict_next(parse_points("8:770 16:1500", 8), FOUR)
    assert score(found, found.rate).error == 0
    assert not score(found, 10 * found.rate).within
    with pytest.raises(RankupError):
        score(found, math.nan)


def test_rates_that_level_off_are_not_predicted_to_rise_again():
    flat = [Point(Size(n, 8), rate) for n, rate in ((1, 100.0), (2, 150.0), (4, 170.0), (8, 175.0))]
    with pytest.raises(RankupError) as caught:
        predict_next(flat, Size(16, 8))
    assert caught.value.code == "other-curve"
    assert (
        "which misses 8 × 8 by" in caught.value.message and "measured 175 samples/s" in caught.value.message
    )


def test_what_the_curve_misses_makes_the_interval_wider():
    def width(rate: float) -> float:
        curve = [Point(Size(n, 8), r) for n, r in ((1, 100.0), (2, 190.0), (4, rate))]
        found = predict_next(curve, Size(8, 8))
        return found.high / found.low

    follows = 400 / (1 + 1.5 * (200 / 190 - 1))  # T(1) + e·2(n−1)/n
    assert width(330.0) > 1.05 * width(follows)


def test_nodes_that_gain_nothing_are_predicted_with_a_warning():
    found = predict_next([Point(Size(1, 8), 100.0), Point(Size(2, 8), 101.0)], Size(4, 8))
    assert [finding.code for finding in found.findings] == ["nodes-limit"]
