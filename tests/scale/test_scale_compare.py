"""Speed-up and efficiency against both baselines, by the devices that each configuration used."""

from __future__ import annotations

import pytest
from studies import configuration, study

from rankup.errors import RankupError
from rankup.scale.families import families, label
from rankup.scale.report.rows import rows_of
from rankup.scale.summary import report


def ratios(*configurations, baseline="", **fields):
    made = report(study(*configurations, **fields), baseline)
    return {(one.kind, one.name): one for one in made.ratios}


PLAIN = configuration(1, 12.0, 10.0, 10.5)
DDP_ONE = configuration(1, 11.0, 10.8, 11.2, strategy="ddp")
DDP_TWO = configuration(2, 6.0, 5.0, 5.5)


def test_medians_are_compared_and_ranges_kept():
    found = ratios(PLAIN, DDP_TWO)["none", "ddp, 2 processes"]
    assert found.speedup == pytest.approx(10.5 / 5.5)
    assert found.efficiency == pytest.approx(10.5 / 5.5 / 2)
    assert found.range == pytest.approx((10 / 6, 12 / 5))
    assert (found.interval, found.within_noise) == (None, False)


def test_both_baselines_and_what_ddp_costs_on_one_device():
    found = ratios(PLAIN, DDP_ONE, DDP_TWO)
    assert list(found) == [
        ("none", "ddp, 1 process"),
        ("none", "ddp, 2 processes"),
        ("ddp", "ddp, 2 processes"),
    ]
    assert found["none", "ddp, 1 process"].efficiency == pytest.approx(10.5 / 11)
    assert found["ddp", "ddp, 2 processes"].speedup == pytest.approx(2)


def test_one_baseline_may_be_chosen():
    assert {kind for kind, _ in ratios(PLAIN, DDP_ONE, DDP_TWO, baseline="ddp")} == {"ddp"}
    four = configuration(4, 3, 3, 3)
    by_key = ratios(DDP_TWO, four, baseline="nproc=2")
    assert by_key["chosen", "ddp, 4 processes"].efficiency == pytest.approx(5.5 / 3 / 2)
    assert ratios(DDP_TWO, four, baseline="ddp, 2 processes") == by_key


def test_a_baseline_that_does_not_exist_is_an_error_that_lists_those_that_do():
    with pytest.raises(RankupError, match="nproc=3") as caught:
        report(study(PLAIN, DDP_TWO), "nproc=3")
    assert "ddp, 2 processes" in caught.value.hint


def test_five_repeats_give_an_interval_of_the_ratio():
    plain, ddp = configuration(1, 10, 10.1, 10.2, 10.3, 10.4), configuration(2, 5.0, 5.1, 5.2, 5.3, 5.4)
    found = ratios(plain, ddp)["none", "ddp, 2 processes"]
    low, high = found.interval
    assert found.range[0] <= low < found.speedup < high <= found.range[1]


@pytest.mark.parametrize("counts", [(1, 3), (2, 5), (5, 2)])
def test_fewer_than_three_repeats_give_times_and_no_ratio(counts):
    one, two = (configuration(n, *[10.0 / n] * count) for n, count in zip((1, 2), counts, strict=True))
    made = report(study(one, two))
    assert made.ratios == []
    assert [finding.code for finding in made.findings] == ["few-repeats"]
    assert made.comparable
    assert "speed-up" not in made.text.replace("interval of the speed-up", "")


def test_weak_scaling_compares_rates_and_never_times():
    one = configuration(1, 10, 10, 10, samples=1000)
    four = configuration(4, 11, 11, 11, samples=4000, global_batch=256, lr=0.004)
    found = ratios(one, four, scaling="weak")["none", "ddp, 4 processes"]
    assert found.speedup == pytest.approx(4 * 10 / 11)
    assert found.efficiency == pytest.approx(10 / 11)


def test_samples_per_second_belong_to_the_printed_runtime_also_of_an_even_number_of_runs():
    """The median of the rates of 1, 1, 3 and 3 s is that of 1.5 s; the median time is 2 s."""
    runs = (1.0, 1.0, 3.0, 3.0)
    made = report(study(configuration(1, *runs, samples=600), configuration(2, *runs, samples=600)))
    assert [(row.seconds.median, row.rate) for row in made.rows] == [(2.0, 300.0)] * 2
    assert [row.rate.median for row in rows_of(made.study)] == [300.0] * 2
    weak = [configuration(1, *runs, samples=600), configuration(2, 2.0, 2.0, 2.0, 2.0, samples=1200)]
    one, two = (found := report(study(*weak, scaling="weak"), allow_unfair=True)).rows
    assert found.ratios[0].speedup == pytest.approx(two.rate / one.rate) == 2.0


def test_efficiency_counts_gpus_whatever_the_threads():
    gpu = {"device_type": "cuda", "device": "H200"}
    found = ratios(
        configuration(1, 10, 10, 10, threads=8, **gpu), configuration(4, 4, 4, 4, threads=2, **gpu)
    )
    assert found["none", "ddp, 4 processes"].efficiency == pytest.approx(10 / 4 / 4)


def test_each_precision_of_a_grid_has_its_own_baseline():
    cells = [
        configuration(n, *[t] * 3, asked={"nproc": n, "precision": p}, precision=p)
        for p, n, t in (("fp32", 1, 40), ("fp32", 4, 11), ("bf16", 1, 12), ("bf16", 4, 4))
    ]
    found = ratios(*cells)
    assert found["none", "ddp, 4 processes, precision=fp32"].speedup == pytest.approx(40 / 11)
    assert found["none", "ddp, 4 processes, precision=bf16"].speedup == pytest.approx(3)
    assert len(found) == 2


def test_cores_per_task_of_a_grid_are_compared_per_core():
    cells = [
        configuration(n, *[t] * 3, asked={"nproc": n, "cpus-per-task": c}, threads=c)
        for n, c, t in ((1, 1, 10), (1, 2, 6), (2, 1, 5.2), (2, 2, 3.1))
    ]
    found = ratios(*cells)
    threads = found["threads", "none, 1 process, cpus-per-task=2"]
    assert (threads.speedup, threads.efficiency) == pytest.approx((10 / 6, 10 / 12))
    assert found["none", "ddp, 2 processes, cpus-per-task=2"].efficiency == pytest.approx(6 / 3.1 / 2)


def test_a_name_tells_only_what_varies():
    same = [configuration(n, asked={"nproc": n, "launcher": "srun"}) for n in (1, 2)]
    assert label(same[1], study(*same)) == "ddp, 2 processes"


def test_a_failed_cell_does_not_lose_the_others():
    failure = {"code": "worker-failed", "severity": "error", "message": "boom", "confidence": "sure"}
    failed = type(PLAIN)({"nproc": 4}, (), failure)
    made = report(study(PLAIN, DDP_TWO, failed))
    assert [one.name for one in made.ratios] == ["ddp, 2 processes"]
    assert not made.comparable
    assert "error: boom [worker-failed]" in made.text and "not comparable: boom" not in made.text


def test_the_plain_run_is_not_compared_with_ddp_on_one_device():
    assert [f.kind for f in families(study(PLAIN, DDP_ONE))] == ["none"]
