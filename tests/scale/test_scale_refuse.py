"""Each study that fooled its authors is refused, and says which field fooled them; fair studies never are."""

from __future__ import annotations

import random

import pytest
from studies import configuration, study

from rankup.findings.finding import Severity
from rankup.scale.summary import report
from rankup.scale.work import EQUAL

GPU = {"device_type": "cuda", "device": "H200"}


def judged(*configurations, **fields):
    return report(study(*configurations, **fields)).findings


def codes(findings, severity=None):
    return [f.code for f in findings if severity in (None, f.severity)]


def only(findings):
    (finding,) = findings
    return finding


def one(**given):
    return configuration(1, 10.0, 10.2, 10.1, **given)


def two(**given):
    return configuration(2, 5.2, 5.3, 5.4, **given)


def four(**given):
    return configuration(4, 2.9, 2.8, 3.0, **given)


def test_equal_work_is_accepted_without_a_word():
    assert judged(one(), two(), four()) == []


# Each reason of the issue: what differs, and the code that refuses it.
UNFAIR = {
    "precision": ((one(), two(precision="bf16")), "unequal-precision"),
    "autocast of the script": ((one(autocast="off"), two(autocast="bfloat16")), "unequal-autocast"),
    "smaller images": ((one(inputs="float32 3×224×224"), two(inputs="float32 3×64×64")), "unequal-inputs"),
    "tf32": ((one(tf32=False), two(tf32=True)), "unequal-tf32"),
    "global batch": ((one(), two(global_batch=128, steps=12)), "unequal-global-batch"),
    "samples of cut batches": ((one(), two(samples=1408)), "unequal-samples"),
    "every rank trains everything": ((one(), two(samples=2 * 1437)), "unequal-samples"),
    "len(loader) * batch": (
        (one(train_samples=1437, samples=1472), two(train_samples=1437, samples=1472)),
        "miscounted-samples",
    ),
    "model": ((one(), two(workload="resnet50-mnist")), "unequal-workload"),
    "data": ((one(), two(data="mnist")), "unequal-data"),
    "optimizer": ((one(), two(optimizer="sgd")), "unequal-optimizer"),
    "learning rate": ((one(), two(lr=0.002)), "unequal-lr"),
    "steps rounded down per rank": ((one(), two(steps=24)), "unequal-steps"),
    "a body that leaves out batches": (
        (one(optimizer_steps=23), two(optimizer_steps=12)),
        "unequal-optimizer-steps",
    ),
    "a program with the same batch on each rank": (
        (
            one(untold=True, samples=0, steps=0, optimizer_steps=46),
            two(untold=True, samples=0, steps=0, optimizer_steps=23),
        ),
        "unequal-optimizer-steps",
    ),
    "ranks that never met": ((one(), configuration(1, 5, 5, 5, asked={"nproc": 2})), "other-process-count"),
    "threads per process": ((one(threads=2), two(threads=1)), "unequal-threads"),
    "a worse model": ((one(accuracy=0.97), two(accuracy=0.88)), "accuracy-differs"),
    "no baseline": ((two(), four()), "baseline-missing"),
    "precision without a baseline of its own": (
        (
            one(asked={"nproc": 1, "precision": "fp32"}),
            four(asked={"nproc": 4, "precision": "bf16"}, precision="bf16"),
        ),
        "unequal-precision",
    ),
    "another kind of device": ((one(), two(**GPU)), "unequal-device-type"),
    "another GPU": ((one(**{**GPU, "device": "V100"}), two(**GPU)), "unequal-device"),
}


@pytest.mark.parametrize("reason", UNFAIR)
def test_an_unfair_comparison_has_an_error_and_no_ratio(reason):
    configurations, code = UNFAIR[reason]
    made = report(study(*configurations))
    assert code in codes(made.findings, Severity.ERROR)
    assert made.ratios == []
    assert not made.comparable
    finding = next(f for f in made.findings if f.code == code)
    assert finding.message
    assert finding.why
    assert finding.fix
    assert "not comparable: no speed-up and no efficiency" in made.text


@pytest.mark.parametrize("reason", sorted(UNFAIR.keys() - {"no baseline"}))
def test_whoever_insists_gets_the_ratios_marked(reason):
    configurations, _ = UNFAIR[reason]
    made = report(study(*configurations), allow_unfair=True)
    assert not made.comparable
    assert all(ratio.unfair for ratio in made.ratios)
    if made.ratios:
        assert "(unfair)" in made.text
        assert "see the errors" in made.text


def test_one_unfair_configuration_does_not_lose_the_others():
    made = report(study(one(), two(), four(precision="bf16")))
    assert [ratio.name for ratio in made.ratios] == ["ddp, 2 processes"]
    assert only(made.findings).message == (
        "the precision differs: fp32 with none, 1 process and ddp, 2 processes, bf16 with ddp, 4 processes"
    )


@pytest.mark.parametrize("name", sorted(EQUAL.keys() - {"device_type"}))
def test_whatever_differs_is_named_with_both_values(name):
    found = judged(one(**{name: 1436}), two(**{name: 1437}))
    finding = next(f for f in found if f.place == name)
    assert finding.severity is Severity.ERROR
    assert "1,436 with none, 1 process, 1,437 with ddp, 2 processes" in finding.message


@pytest.mark.parametrize("name", sorted(EQUAL.keys() - {"device_type", "samples", "steps", "test_samples"}))
def test_what_only_one_side_tells_is_no_evidence(name):
    assert judged(one(untold=True, **{name: 1}), two(untold=True)) == []


def test_updates_that_all_configurations_accumulate_alike_are_equal_work():
    assert judged(one(optimizer_steps=6), two(optimizer_steps=6)) == []
    weak = [configuration(n, 10, 10, 10, samples=640 * n, steps=10, global_batch=64 * n) for n in (1, 2)]
    for cells, taken in zip(weak, (5, 5), strict=True):
        for run in cells.runs:
            run.facts["optimizer_steps"] = taken
    assert judged(*weak, scaling="weak") == []
    for run in weak[1].runs:
        run.facts["optimizer_steps"] = 3
    assert codes(judged(*weak, scaling="weak")) == ["unequal-optimizer-steps"]


def test_a_few_overflows_are_named_and_a_ratio_is_printed():
    made = report(study(one(steps=1000, optimizer_steps=998), two(steps=1000, optimizer_steps=1000)))
    assert [(f.code, f.severity) for f in made.findings] == [("unequal-optimizer-steps", Severity.WARNING)]
    assert made.ratios


def test_batches_that_all_leave_out_are_in_the_heading():
    made = report(study(one(optimizer_steps=12), two(optimizer_steps=12)))
    assert "1,437 samples in 23 steps, 12 optimizer steps" in made.text


def test_a_program_whose_work_nobody_knows_is_doubted():
    silent = [configuration(n, 10 / n, 10 / n, 10 / n, untold=True, samples=0, steps=0) for n in (1, 2)]
    assert "work-unknown" in codes(judged(*silent, metric="took (.*)"), Severity.WARNING)
    for cells in silent:
        for run in cells.runs:
            run.facts["optimizer_steps"] = 23
    assert "work-unknown" not in codes(judged(*silent, metric="took (.*)"))


def test_one_repeat_that_differs_is_enough():
    odd = configuration(2, 5.2, 5.3)
    odd.runs.append(two(seed=1).runs[2])
    assert codes(judged(one(), odd)) == ["unequal-seed"]


def test_threads_changed_between_repeats():
    odd = two()
    odd.runs[2] = two(threads=2).runs[2]
    assert codes(judged(one(), odd), Severity.ERROR) == ["unsteady-threads"]


def test_threads_of_gpu_runs_may_differ():
    assert judged(one(threads=8, **GPU), two(threads=4, **GPU)) == []


@pytest.mark.parametrize(
    ("samples", "accuracy", "severity"),
    [
        (360, 0.95, None),
        (360, 0.935, Severity.WARNING),
        (360, 0.88, Severity.ERROR),
        (10_000, 0.966, None),
        (10_000, 0.963, Severity.WARNING),
        (10_000, 0.95, Severity.ERROR),
    ],
)
def test_how_far_accuracies_may_be_apart_depends_on_the_test_samples(samples, accuracy, severity):
    found = judged(one(accuracy=0.97, test_samples=samples), two(accuracy=accuracy, test_samples=samples))
    assert [(f.code, f.severity) for f in found] == ([("accuracy-differs", severity)] if severity else [])


def test_the_spread_of_the_repeats_is_noise_too():
    shaky = [configuration(n, *[10 / n] * 3, test_samples=10_000) for n in (1, 2)]
    for cells, accuracies in zip(shaky, ((0.95, 0.97, 0.99), (0.93, 0.95, 0.97)), strict=True):
        cells.runs[:] = [configuration(1 + (cells is shaky[1]), r.seconds, accuracy=a, test_samples=10_000).runs[0]
                         for r, a in zip(cells.runs, accuracies, strict=True)]  # fmt: skip
    assert judged(*shaky) == []


def test_the_median_of_the_repeats_is_what_counts_as_accuracy():
    odd = two()
    odd.runs[2] = two(accuracy=0.1).runs[2]
    assert judged(one(), odd) == []


def test_accuracies_without_a_number_of_test_samples_allow_half_a_point():
    assert judged(one(untold=True, accuracy=0.95), two(untold=True, accuracy=0.945)) == []
    assert codes(judged(one(untold=True, accuracy=0.95), two(untold=True, accuracy=0.92))) == [
        "accuracy-differs"
    ]


def test_no_accuracy_at_all_is_no_evidence():
    assert judged(one(accuracy=None), two(accuracy=None)) == []


def test_a_superlinear_result_is_flagged_with_its_likely_cause():
    fast = configuration(4, 1.0, 1.01, 1.02)
    finding = only(judged(configuration(1, 15.2, 15.3, 15.1), fast))
    assert (finding.code, finding.severity) == ("superlinear", Severity.WARNING)
    assert "efficiency of 376% against none, 1 process" in finding.message
    assert "16 samples per process fit caches" in finding.why
    assert (
        "2 threads of one process"
        in only(judged(configuration(1, 15, 15, 15, threads=2), configuration(2, 5, 5, 5, threads=2))).why
    )


def test_a_baseline_that_waits_for_data_explains_a_superlinear_result():
    baseline = one(**GPU)
    parts = {"data": 0.5, "compute": 0.5}
    baseline.runs[0] = type(baseline.runs[0])(**{**vars(baseline.runs[0]), "breakdown": parts})
    finding = only(judged(baseline, configuration(4, 1, 1, 1, **GPU)))
    assert "waits 50% of each step for data" in finding.why


def test_noise_is_not_superlinear():
    assert judged(configuration(1, 10, 10.9, 11.4), configuration(2, 5.1, 5.0, 5.3)) == []


def test_on_shared_cores_a_superlinear_result_has_no_ratio():
    narrow = {"machine": {"cpu_count": 2, "cpus": [0, 1]}}
    cells = configuration(1, 10, 10, 10, threads=2), configuration(2, 3, 3, 3, threads=2)
    made = report(study(*cells, **narrow))
    assert codes(made.findings) == ["superlinear", "oversubscribed"]
    assert made.ratios == []
    slower = report(study(cells[0], configuration(2, 7, 7, 7, threads=2), **narrow))
    assert [(f.code, f.severity) for f in slower.findings] == [("oversubscribed", Severity.WARNING)]
    assert len(slower.ratios) == 1


@pytest.mark.parametrize(
    ("load", "processes", "busy"),
    [(6.0, 2, True), (0.4, 2, False), (2.5, 2, False), (2.5, 8, True), (None, 8, False)],
)
def test_a_machine_without_room_for_the_study_has_no_ratio(load, processes, busy):
    cells = one(), configuration(processes, *[11 / processes] * 3)
    made = report(study(*cells, load_before=load))
    assert codes(made.findings) == (["busy-machine"] if busy else [])
    assert bool(made.ratios) is not busy
    # Nothing has failed: there is a table, and a sentence why it has no ratio.
    assert "error:" not in made.text and one().runs[0].device_type == "cpu"
    told = f"not comparable: others used {load} of 8 CPUs before the first run [busy-machine]"
    assert (told in made.text) is busy


def test_gpus_suffer_less_from_a_busy_machine():
    made = report(study(one(**GPU), two(**GPU), load_before=7.0))
    assert [(f.code, f.severity) for f in made.findings] == [("busy-machine", Severity.WARNING)]
    assert len(made.ratios) == 1


def test_weak_scaling_fixes_the_batch_of_a_process():
    grown = configuration(2, 10.5, 10.6, 10.4, samples=2 * 1437, global_batch=128, lr=0.002)
    assert judged(one(), grown, scaling="weak") == []
    found = judged(one(), two(samples=1437, global_batch=256), scaling="weak")
    assert codes(found, Severity.ERROR) == ["unequal-local-batch"]
    assert "unequal-global-batch" in codes(judged(one(), grown))


@pytest.mark.parametrize("insist", [False, True])
def test_weak_scaling_has_no_ratio_of_samples_that_nobody_counted(insist):
    told = [
        configuration(1, 5.0, 5.0, 5.0, samples=0, steps=0, untold=True),
        configuration(2, 5.1, 5.1, 5.1, samples=0, steps=0, untold=True),
    ]
    made = report(study(*told, scaling="weak"), allow_unfair=insist)
    assert (made.ratios, codes(made.findings)) == ([], ["samples-unknown"])


def test_threads_that_share_cores_are_counted_on_each_node():
    pair = [configuration(1, 4.0, 4.0, 4.0), configuration(8, 3.0, 3.0, 3.0, nodes=2)]
    found = [
        f.message
        for f in report(study(*pair, machine={"cpu_count": 2})).findings
        if f.code == "oversubscribed"
    ]
    assert found == ["ddp, 2 × 4 processes: 4 threads share 2 CPUs on each node"]


def test_a_time_by_a_pattern_may_contain_the_warm_up():
    assert codes(judged(one(), two(), metric="Time: (.*)")) == ["warm-up-unknown"]
    assert judged(one(warm_up=10), two(warm_up=10), metric="Time: (.*)") == []


def fair_study(seed):
    """A fair study of any size, device and scaling, with the noise of a real cluster."""
    source = random.Random(seed)
    weak, gpus = source.random() < 0.3, source.random() < 0.5
    seconds, efficiency = source.uniform(1, 500), source.uniform(0.4, 1.0)
    noise = source.choice([0.002, 0.008, 0.03])
    right, tests = source.uniform(0.5, 0.99), source.choice([360, 1000, 10_000])
    facts = {"threads": source.choice([1, 2]), "test_samples": tests, **(GPU if gpus else {})}
    repeats = source.choice([1, 3, 5, 8])
    cells = []
    for processes, strategy in [(1, "none"), (1, "ddp"), (2, "ddp"), (4, "fsdp")]:
        grown = processes if weak else 1
        true = seconds * grown / processes / (efficiency if processes > 1 else 1)
        times = [true * (1 + abs(source.gauss(0, noise))) for _ in range(repeats)]
        accuracy = sum(source.random() < right for _ in range(tests)) / tests
        work = {"samples": 1437 * grown, "global_batch": 64 * grown}
        cells.append(configuration(processes, *times, strategy=strategy, accuracy=accuracy, **work, **facts))
    return study(*cells, scaling="weak" if weak else "strong", load_before=source.uniform(0, 0.4))


@pytest.mark.parametrize("seed", range(20))
def test_a_fair_study_is_never_refused(seed):
    made = report(fair_study(seed))
    assert codes(made.findings, Severity.ERROR) == []
    assert "superlinear" not in codes(made.findings)
    if len(made.study.configurations[0].runs) >= 3:
        assert len(made.ratios) == 3 + 2


@pytest.mark.parametrize(
    ("seconds", "severity"), [(0.015, Severity.ERROR), (0.09, Severity.ERROR), (0.5, Severity.WARNING)]
)
def test_runs_that_are_too_short_to_be_measured_are_said(seconds, severity):
    found = judged(configuration(1, *[seconds] * 3), configuration(2, 5.2, 5.3, 5.4))
    assert "short-runs" in codes(found, severity)


def test_a_sevenfold_spread_has_no_ratio_and_a_small_one_has():
    wide = report(study(configuration(1, 2.0, 9.0, 14.0), two()))
    assert "wide-spread" in codes(wide.findings, Severity.ERROR) and wide.ratios == []
    doubtful = report(study(configuration(1, 10.0, 12.0, 13.5), two()))
    assert codes(doubtful.findings) == ["wide-spread"] and len(doubtful.ratios) == 1
    assert judged(configuration(1, 10.0, 10.5, 12.0), two()) == []


def test_steps_that_change_fourfold_within_a_run_are_said():
    found = only(judged(one(step_seconds=[0.1, 0.4]), two(step_seconds=[0.05, 0.06])))
    assert (found.code, found.severity) == ("unsteady-steps", Severity.WARNING)
    assert "a step takes 100 to 400 ms" in found.message
