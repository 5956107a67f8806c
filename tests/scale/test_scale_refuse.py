"""Each study that fooled its authors is refused, and says which field fooled them."""

from __future__ import annotations

from dataclasses import replace

import pytest
from studies import IDLE, repeats, run

from rankup.findings.finding import Severity
from rankup.scale.comparability import EQUAL, judge


def codes(findings, severity=None):
    return [f.code for f in findings if severity in (None, f.severity)]


def only(findings):
    (finding,) = findings
    return finding


def test_equal_work_is_accepted_without_a_word():
    assert judge(repeats(1, 10, 10.2) + repeats(2, 5.2, 5.3) + repeats(4, 2.9, 2.8), IDLE) == []


def test_a_speed_up_of_15_on_4_gpus_because_the_baseline_ran_in_fp32():
    finding = only(judge([run(1, 152), run(4, 40, precision="bf16")], IDLE))
    assert finding.code == "unequal-precision"
    assert finding.severity is Severity.ERROR
    assert finding.message == "the precision differs: fp32 with 1 process, bf16 with 4 processes"


def test_throughput_of_batches_that_were_cut_short():
    finding = only(judge([run(1, samples=1437), run(2, samples=1408)], IDLE))
    assert finding.code == "unequal-samples"
    assert "1,437 with 1 process, 1,408 with 2 processes" in finding.message


def test_every_rank_trained_on_all_samples():
    found = judge([run(1, samples=1437), run(4, samples=4 * 1437)], IDLE)
    assert codes(found) == ["unequal-samples"]


def test_processes_that_never_met():
    finding = only(judge([run(1), run(2, world_size=1)], IDLE))
    assert finding.code == "other-process-count"
    assert finding.message == "the study asked for 2 processes, and 1 process trained together"


def test_runtimes_of_different_global_batches():
    found = judge([run(1, global_batch=64, steps=23), run(2, global_batch=128, steps=12)], IDLE)
    assert codes(found) == ["unequal-steps", "unequal-global-batch"]


def test_a_batch_that_was_rounded_down_per_rank_shows_in_the_steps():
    assert codes(judge([run(1, steps=23), run(3, steps=24)], IDLE)) == ["unequal-steps"]


def test_a_larger_version_that_trained_a_worse_model():
    finding = only(judge([run(1, 10, test_accuracy=0.97), run(2, 6, test_accuracy=0.91)], IDLE))
    assert (finding.code, finding.severity) == ("accuracy-differs", Severity.WARNING)
    assert "91.00%" in finding.message
    assert "97.00%" in finding.message
    assert "2 standard errors" in finding.why


@pytest.mark.parametrize(
    ("samples", "accuracy", "warned"),
    [(360, 0.95, False), (360, 0.92, True), (10_000, 0.965, False), (10_000, 0.96, True)],
)
def test_how_far_accuracies_may_be_apart_depends_on_the_test_samples(samples, accuracy, warned):
    facts = {"test_samples": samples}
    found = judge([run(1, 10, test_accuracy=0.97, **facts), run(2, 6, test_accuracy=accuracy, **facts)], IDLE)
    assert codes(found) == (["accuracy-differs"] if warned else [])


def test_the_median_of_the_repeats_is_what_counts_as_accuracy():
    odd_one = run(2, 5.1, repeat=3, test_accuracy=0.1)
    assert judge([*repeats(1, 10, 10, 10), *repeats(2, 5.2, 5.3), odd_one], IDLE) == []


@pytest.mark.parametrize("name", sorted(EQUAL.keys() - {"steps"}))
def test_whatever_differs_is_named_with_both_values(name):
    finding = judge([run(1, **{name: 1436}), run(2, **{name: 1437})], IDLE)[0]
    assert finding.severity is Severity.ERROR
    assert finding.place == name
    assert "1,436 with 1 process, 1,437 with 2 processes" in finding.message


def test_one_repeat_that_differs_is_enough():
    found = judge([*repeats(1, 10, 10), run(2, 5), run(2, 5, repeat=2, seed=1)], IDLE)
    assert codes(found) == ["unequal-seed"]
    assert "0 with 1 process and 2 processes, 1 with 2 processes" in found[0].message


def test_threads_may_differ_between_versions_but_not_between_repeats():
    assert judge([run(1, threads=2), run(2, 9.5, threads=1)], IDLE) == []
    found = judge([run(1, 10), run(2, 5, threads=2), run(2, 5, repeat=2, threads=1)], IDLE)
    assert codes(found) == ["unsteady-threads"]


def test_nodes_may_differ_in_number_and_each_has_as_many_processes_as_asked():
    assert judge([run(1, 10, world_size=2, nodes=2), run(2, 5.5, world_size=4, nodes=2)], IDLE) == []


def test_an_efficiency_above_what_the_cores_can_give_is_suspect():
    finding = only(judge([run(1, 15.2), run(4, 1.0)], IDLE))
    assert (finding.code, finding.severity) == ("superlinear", Severity.WARNING)
    assert "380%" in finding.message


def test_no_ratio_is_computed_even_for_a_warning_where_work_differs():
    assert codes(judge([run(1, 15.2, precision="fp64"), run(4, 1.0)], IDLE)) == ["unequal-precision"]


def test_more_threads_than_cpus_are_a_warning():
    two = replace(IDLE, cpus=(0, 1))
    found = judge([run(1, threads=2), run(2, threads=2)], two)
    assert codes(found, Severity.WARNING) == ["oversubscribed"]
    assert "2 processes of 2 threads share 2 CPUs" in found[0].message
    assert judge([run(1, threads=2, device_type="cuda"), run(2, threads=2, device_type="cuda")], two) == []


def test_a_machine_on_which_others_compute_is_a_warning():
    assert codes(judge([run(1), run(2, 5.1)], replace(IDLE, load=6.0))) == ["busy-machine"]
    assert judge([run(1), run(2, 5.1)], replace(IDLE, load=None)) == []
