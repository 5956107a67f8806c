"""Speed-up and efficiency against the fewest processes, by the cores that each version used."""

from __future__ import annotations

import pytest
from studies import repeats, run

from rankup.scale.rows import compare


def test_medians_are_compared_and_ranges_kept():
    plain, ddp = compare([*repeats(2, 6.0, 5.0, 5.5), *repeats(1, 10.0, 12.0, 10.5)])
    assert (plain.version, plain.processes, plain.speedup, plain.efficiency) == ("plain", 1, 1, 1)
    assert (plain.speedup_range, plain.within_noise) == (None, None)
    assert (ddp.version, ddp.processes) == ("ddp", 2)
    assert ddp.speedup == pytest.approx(10.5 / 5.5)
    assert ddp.efficiency == pytest.approx(10.5 / 5.5 / 2)
    assert ddp.speedup_range == pytest.approx((10 / 6, 12 / 5))
    assert ddp.within_noise is False


def test_efficiency_counts_cores_where_threads_differ():
    _, ddp = compare([run(1, 10, threads=4), run(2, 8, threads=2)])
    assert ddp.cores == 4
    assert ddp.efficiency == pytest.approx(10 / 8)


def test_efficiency_counts_gpus_whatever_the_threads():
    gpu = {"device_type": "cuda", "device": "H200"}
    _, ddp = compare([run(1, 10, threads=8, **gpu), run(4, 4, threads=2, **gpu)])
    assert ddp.cores == 4
    assert ddp.efficiency == pytest.approx(10 / 4 / 4)


def test_the_baseline_may_have_several_processes():
    first, second = compare([run(2, 10), run(8, 4)])
    assert first.efficiency == 1
    assert second.efficiency == pytest.approx(2.5 / 4)


def test_overlapping_runtimes_are_within_the_noise():
    _, ddp = compare([*repeats(1, 10, 11), *repeats(2, 10.5, 9)])
    assert ddp.within_noise is True


def test_single_runs_tell_neither_a_range_nor_noise():
    _, ddp = compare([run(1, 10), run(2, 10)])
    assert (ddp.speedup_range, ddp.within_noise) == (None, None)
