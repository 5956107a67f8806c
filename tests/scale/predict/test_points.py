"""What is accepted as a measurement, and what is refused with a reason."""

from __future__ import annotations

import pytest

from rankup.errors import RankupError
from rankup.scale.predict.points import Point, Size, from_results, parse_points, read_csv, size_of
from rankup.scale.results import Configuration, Measured, StudyResults


def run(nodes: int, each: int, seconds: float = 10.0, repeat: int = 1, **more) -> Measured:
    count = nodes * each
    facts = {"precision": "fp32", **more.pop("facts", {})}
    given = {"strategy": "ddp" if count > 1 else "none", "threads": 1, "device_type": "cuda", **more}
    return Measured(repeat, seconds, 1000 * count, 10, nodes, count, facts=facts, **given)


def study(*configurations: list[Measured], scaling: str = "weak") -> StudyResults:
    return StudyResults("train.py", scaling, [Configuration({}, runs) for runs in configurations], {}, 1)


def test_sizes_are_devices_on_full_nodes_or_nodes_times_devices():
    assert size_of("4", 8) == Size(1, 4)
    assert size_of("32", 8) == Size(4, 8) == size_of("4x8", None)
    assert size_of("8", 8) == Size(1, 8)


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("", "bad-point"),
        ("8", "bad-point"),
        ("x:5", "bad-size"),
        ("0:5", "bad-size"),
        ("-1:5", "bad-size"),
        ("1.5:5", "bad-size"),
        ("0x8:5", "bad-size"),
        ("8:0", "bad-rate"),
        ("8:-3", "bad-rate"),
        ("8:nan", "bad-rate"),
        ("8:inf", "bad-rate"),
        ("8:fast", "bad-rate"),
        ("8:", "bad-rate"),
        ("8:100 8:101", "duplicate-point"),
        ("8:100 1x8:101", "duplicate-point"),
        ("12:100", "partial-node"),
    ],
)
def test_a_bad_point_is_refused(text, code):
    with pytest.raises(RankupError) as caught:
        parse_points(text, 8)
    assert caught.value.code == code
    assert caught.value.hint


def test_devices_without_nodes_are_refused():
    with pytest.raises(RankupError, match="how many of them are on one node"):
        parse_points("16:100", None)


def test_rows_of_one_size_in_a_table_are_repeats(tmp_path):
    path = tmp_path / "curve.csv"
    path.write_text("nodes, per_node, rate\n1,8,100\n1,8,110\n1,8,90\n2,8,180\n")
    first, second = read_csv(path, None)
    assert (first.rate, first.repeats, round(first.spread, 3)) == (100, 3, 0.1)
    assert second == Point(Size(2, 8), 180)


@pytest.mark.parametrize("text", ["", "a,b\n1,2\n", "gpus,rate\n1,fast\n", "gpus,rate\n1\n", "\0\n"])
def test_a_table_without_its_columns_or_numbers_is_refused(tmp_path, text):
    path = tmp_path / "curve.csv"
    path.write_text(text)
    with pytest.raises(RankupError):
        read_csv(path, 8)


def test_a_missing_table_is_refused(tmp_path):
    with pytest.raises(RankupError, match=r"cannot read none\.csv"):
        read_csv(tmp_path / "none.csv", 8)


def test_a_study_gives_the_median_of_its_repeats_and_its_one_process():
    points = from_results(study([run(1, 1)], [run(1, 4, 10), run(1, 4, 12), run(1, 4, 8)], [run(2, 4)]))
    assert [point.size for point in points] == [Size(1, 1), Size(1, 4), Size(2, 4)]
    assert points[1].rate == 400


def test_a_study_with_two_strategies_needs_a_choice():
    mixed = study([run(1, 1)], [run(1, 4)], [run(1, 4, strategy="fsdp")])
    with pytest.raises(RankupError, match="several strategies: ddp, fsdp"):
        from_results(mixed)
    assert [point.size.devices for point in from_results(mixed, "fsdp")] == [1, 4]
    with pytest.raises(RankupError, match="no run of the study used 'pp'"):
        from_results(mixed, "pp")


@pytest.mark.parametrize("other", [{"facts": {"precision": "bf16"}}, {"threads": 2}])
def test_a_study_with_other_work_in_one_series_is_refused(other):
    with pytest.raises(RankupError, match="the runs differ in"):
        from_results(study([run(1, 1)], [run(1, 4, **other)]))


def test_a_study_without_runs_is_refused():
    with pytest.raises(RankupError, match="no measurement"):
        from_results(study([]))
