"""What is read from the records of a run: both forms, several attempts, lines cut by a kill, fields that are absent."""

from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rankup.errors import RankupError
from rankup.scale.report.run_records import read_run
from rankup.scale.report.thin import thinned
from report_inputs import write_run


def lines(path, *records):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(one) + "\n" for one in records))


def step(number, *, attempt=1, epoch=1, **more):
    return {"kind": "step", "attempt": attempt, "epoch": epoch, "step": number, "steps": 10,
            "global_step": 10 * (epoch - 1) + number, "seconds": 1.0 * number,
            "metrics": {"loss": 10.0 * attempt + number}, **more}  # fmt: skip


def test_a_run_is_read_with_its_curves_totals_and_nodes(tmp_path):
    run = read_run(write_run(tmp_path / "a", steps=10, epochs=3, hosts=2, gpus=2), "a")
    assert run.samples == 64 * 10 * 3
    assert run.seconds == pytest.approx(0.05 * 30)
    assert run.waited == pytest.approx(0.1, rel=0.01)
    assert list(run.epochs["test_accuracy"].epochs) == [1, 2, 3]
    assert len(run.steps["loss"].values) == 30
    assert run.steps["loss"].epochs[-1] == pytest.approx(3.0)
    assert [host.host for host in run.hosts] == ["node1", "node2"]
    assert 80 <= run.hosts[0].gpu.mean() <= 95
    assert run.hosts[0].power[0] == 600.0


def test_steps_that_a_later_attempt_did_again_are_shown_once(tmp_path):
    first = [step(n) for n in range(1, 8)]
    second = [step(n, attempt=2) for n in range(5, 11)]
    lines(tmp_path / "records" / "steps.jsonl", *first, *second)
    assert list(read_run(tmp_path, "a").steps["loss"].values) == [11, 12, 13, 14, 25, 26, 27, 28, 29, 30]


def test_a_second_loop_goes_on_where_the_first_one_ended(tmp_path):
    steps = [step(10 * n, global_step=10 * n + offset, samples=100) for offset in (0, 10) for n in (1,)]
    ends = [
        {"kind": "epoch", "epoch": 1, "global_step": at, "samples": 100, "seconds": 5.0} for at in (10, 20)
    ]
    lines(tmp_path / "records" / "steps.jsonl", *steps)
    lines(tmp_path / "records" / "epochs.jsonl", *ends)
    run = read_run(tmp_path, "a")
    assert (run.samples, len(run.steps["loss"].values)) == (200, 2)


def test_a_number_that_is_told_now_and_then_lacks_no_value(tmp_path):
    rare = [step(n, metrics={"loss": 1.0, **({"rare": 5.0} if n == 2 else {})}) for n in range(1, 5)]
    lines(tmp_path / "records" / "steps.jsonl", *rare)
    curve = read_run(tmp_path, "a").steps["rare"]
    assert (list(curve.values), curve.lost) == ([5.0], 0)


def test_a_line_cut_by_a_kill_costs_that_line_alone(tmp_path):
    path = tmp_path / "records" / "steps.jsonl"
    lines(path, *(step(n) for n in range(1, 6)))
    whole = path.read_text()
    path.write_text(whole[:-30])
    assert list(read_run(tmp_path, "a").steps["loss"].values) == [11, 12, 13, 14]
    path.write_text(whole[:-30] + json.dumps(step(6)) + "\n" + json.dumps(step(7)) + "\n")
    assert list(read_run(tmp_path, "a").steps["loss"].values) == [11, 12, 13, 14, 17]


def test_two_halves_of_lines_that_would_join_to_one_record_are_none(tmp_path):
    path = tmp_path / "records" / "steps.jsonl"
    lines(path, step(1))
    path.write_text(path.read_text() + '{"kind": "step", "epoch": 1, "step": 2\n"metrics": {"loss": 99.0}}\n')
    assert list(read_run(tmp_path, "a").steps["loss"].values) == [11]


@pytest.mark.parametrize("odd", [None, "many", [1], {"a": 1}, 10**400])
def test_a_field_that_is_no_number_is_unknown(tmp_path, odd):
    lines(
        tmp_path / "records" / "steps.jsonl", step(1), step(2, seconds=odd, data_s=odd, metrics={"loss": odd})
    )
    run = read_run(tmp_path, "a")
    assert list(run.steps["loss"].values) == [11]


def test_a_loss_of_nan_is_left_out_and_counted(tmp_path):
    lines(tmp_path / "records" / "steps.jsonl", step(1), step(2, metrics={"loss": float("nan")}))
    curve = read_run(tmp_path, "a").steps["loss"]
    assert (list(curve.values), curve.lost) == ([11], 1)


def test_a_run_that_ended_with_nan_has_no_last_loss(tmp_path):
    """Its last finite loss may be the least of all runs, and it has learned nothing since."""
    lines(tmp_path / "records" / "steps.jsonl", step(1), step(2, metrics={"loss": float("nan")}))
    assert np.isnan(read_run(tmp_path, "r").last("loss"))
    lines(tmp_path / "records" / "steps.jsonl", step(1, metrics={"loss": float("nan")}), step(2))
    assert np.isfinite(read_run(tmp_path, "r").last("loss"))


def test_a_run_that_was_killed_counts_the_samples_of_its_last_epoch(tmp_path):
    lines(
        tmp_path / "records" / "epochs.jsonl",
        {"kind": "epoch", "epoch": 1, "global_step": 10, "samples": 100, "seconds": 5.0},
    )
    lines(tmp_path / "records" / "steps.jsonl", step(3, epoch=2, samples=30, seconds=6.5))
    run = read_run(tmp_path, "a")
    assert (run.samples, run.seconds, run.outcome) == (130, 6.5, "")


def test_gpus_that_a_sample_lacks_are_not_zero(tmp_path):
    gpus = [{"index": 0, "utilization": 40}, {"index": 1, "utilization": 80}]
    lines(
        tmp_path / "records" / "utilization-n.jsonl",
        {"kind": "sample", "time": 5.0, "host": "n", "gpus": gpus},
        {"kind": "sample", "time": 6.0, "host": "n", "gpus": gpus[:1]},
        {"kind": "sample", "time": 7.0, "host": "n"},
    )
    (host,) = read_run(tmp_path, "a").hosts
    np.testing.assert_array_equal(host.gpu, [60, 40, np.nan])
    np.testing.assert_array_equal(host.power, [np.nan] * 3)
    assert list(host.seconds) == [0, 1, 2]


def test_no_records_are_one_error_that_says_who_writes_them(tmp_path):
    with pytest.raises(RankupError) as error:
        read_run(tmp_path, "a")
    assert error.value.code == "no-records"
    assert "run.steps" in error.value.hint


@given(st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=400), st.integers(4, 60))
def test_a_thinned_curve_keeps_its_extremes_its_ends_and_its_order(values, most):
    array = np.array(values)
    kept = thinned(array, most)
    assert len(kept) <= most or len(values) <= most
    assert list(kept) == sorted(set(kept))
    assert (kept[0], kept[-1]) == (0, len(values) - 1)
    assert array[kept].min() == array.min() and array[kept].max() == array.max()
