"""A run is measured by its own records, or by a pattern over what it printed."""

from __future__ import annotations

import pytest
from studies import leave_records

from rankup.core.records import RecordWriter
from rankup.core.rundir import RunDir
from rankup.errors import RankupError
from rankup.scale.plan import Trial
from rankup.scale.read_run import parse_metric, read_breakdown, read_run, with_shares

TRIAL = Trial((("nproc", 2),), 1)


@pytest.fixture
def run(tmp_path) -> RunDir:
    return RunDir.create(tmp_path, "script")


def test_a_script_is_timed_without_its_warm_up(run):
    leave_records(run, 2, 5.0)
    found = read_run(TRIAL, run)
    assert (found.seconds, found.samples, found.steps, found.strategy) == (5.0, 1437, 23, "ddp")
    assert found.facts["global_batch"] == 64


def test_what_ran_is_told_and_not_what_was_asked_for(run):
    leave_records(run, 3, threads=7)
    found = read_run(TRIAL, run)
    assert (found.processes, found.threads) == (3, 7)


def test_records_that_a_kill_cut_short_are_no_measurement(run):
    leave_records(run, ends=False)
    with (run.records / "steps.jsonl").open("a") as file:
        file.write('{"kind": "end", "seconds": 1')
    with pytest.raises(RankupError) as caught:
        read_run(TRIAL, run)
    assert caught.value.code == "nothing-measured"
    assert "--metric" in caught.value.hint


def test_the_last_match_counts_wherever_it_was_printed(run):
    metric = parse_metric(r"time = ([0-9.,]+) s")
    (run.logs / "job.log").write_text("time = 1 s\n")
    assert read_run(TRIAL, run, metric).seconds == 1
    (run.logs / "rank-0.out").write_text("time = 7 s\ntime = 1,234.5 s\n")
    found = read_run(TRIAL, run, metric)
    assert (found.seconds, found.samples, found.processes) == (1234.5, 0, 2)


def test_ranks_that_each_trained_alone_are_one_process_each(run):
    """A program that is timed by its output has no records that tell how many processes met."""
    (run.logs / "rank-0.out").write_text("took 2.5\n")
    metric = parse_metric("took (.*)")
    assert read_run(TRIAL, run, metric).processes == 2
    for rank in range(2):
        (run.path / f"trained-alone-{rank}").touch()
    assert read_run(TRIAL, run, metric).processes == 1
    leave_records(run, 2, 5.0)  # it met others by the library
    assert read_run(TRIAL, run, metric).processes == 2


def test_optimizer_steps_are_those_of_all_loops_or_of_the_watched_rank(run):
    (run.logs / "rank-0.out").write_text("took 2.5\n")
    metric = parse_metric("took (.*)")
    assert "optimizer_steps" not in read_run(TRIAL, run, metric).facts
    (run.path / "optimizer-steps").write_text("17")
    assert read_run(TRIAL, run, metric).facts["optimizer_steps"] == 17
    with RecordWriter(run.records / "steps.jsonl") as records:
        for first, taken in ((0, 5), (6, 6)):
            records.write("begin", attempt=1, global_step=first, facts={})
            counted = {"seconds": 1, "samples": 30, "steps": 6, "warm_seconds": 1, "warm_samples": 15}
            records.write("end", attempt=1, global_step=first + 6, optimizer_steps=taken, **counted)
    assert read_run(TRIAL, run).facts["optimizer_steps"] == 11


@pytest.mark.parametrize(
    ("printed", "seconds"),
    [("12,34", 12.34), ("0,125", 0.125), ("1.234,5", 1234.5), ("1,234,567", 1234567), ("1.5e-3", 0.0015)],
)
def test_a_time_is_read_in_the_notation_of_its_country(run, printed, seconds):
    (run.logs / "rank-0.out").write_text(f"time = {printed} s\n")
    assert read_run(TRIAL, run, parse_metric(r"time = (\S+) s")).seconds == seconds


def test_a_comma_that_may_be_either_is_refused(run):
    (run.logs / "rank-0.out").write_text("time = 1,234 s\n")
    with pytest.raises(RankupError, match="may be thousands or decimals"):
        read_run(TRIAL, run, parse_metric(r"time = (\S+) s"))


def test_a_pattern_that_never_matches_is_one_error(run):
    (run.logs / "rank-0.out").write_text("took 5 s\n")
    with pytest.raises(RankupError, match="nothing that the run printed matches") as caught:
        read_run(TRIAL, run, parse_metric("time = ([0-9]+)"))
    assert caught.value.code == "metric-not-found"


@pytest.mark.parametrize("printed", ["time = fast", "time = 0", "time = -3", "time = nan", "time = 1e999"])
def test_a_match_that_is_no_time_is_one_error(run, printed):
    (run.logs / "rank-0.out").write_text(printed)
    with pytest.raises(RankupError) as caught:
        read_run(TRIAL, run, parse_metric("time = (.*)"))
    assert caught.value.code == "bad-metric"


@pytest.mark.parametrize(("pattern", "named"), [("time", "has 0"), ("(a)(b)", "has 2"), ("(", "invalid")])
def test_a_pattern_has_one_group(pattern, named):
    with pytest.raises(RankupError, match=named) as caught:
        parse_metric(pattern)
    assert caught.value.code == "bad-metric"


def test_the_parts_of_a_step_are_those_that_add_up(run):
    assert read_breakdown(run) == {}
    with RecordWriter(run.records / "steps.jsonl") as records:
        records.write("breakdown", parts={"step": 4.0, "data": 1.0, "compute": 3.0})
    assert read_breakdown(run) == {"data": 1.0, "compute": 3.0}


def loops(run, *ends, training="", attempt=1):
    """A loop after another: ``begin``, and its ``end`` with seconds, samples, steps, and those that were warm."""
    with RecordWriter(run.records / "steps.jsonl") as records:
        for end in ends:
            records.write("begin", attempt=attempt, training=training, global_step=0, unit="epochs", facts={})
            if end is not None:
                names = ("seconds", "samples", "steps", "warm_seconds", "warm_samples")
                records.write("end", attempt=attempt, global_step=1, **dict(zip(names, end, strict=True)))


def test_a_loop_for_each_epoch_is_timed_as_a_whole(run):
    loops(run, (3.0, 30, 6, 1.0, 15), (1.0, 30, 6, 0.5, 15), (1.5, 30, 6, 0.7, 15))
    found = read_run(TRIAL, run)
    assert (found.seconds, found.samples, found.steps) == (3.5, 75, 18)


def test_samples_of_the_first_steps_are_told_apart(run):
    loops(run, (3.0, 30, 6, 1.0, 15))
    found = read_run(TRIAL, run)
    assert (found.samples, found.facts["all_samples"]) == (15, 30)


def test_the_loops_of_another_training_are_not_timed(run):
    loops(run, (3.0, 30, 6, 1.0, 15), training="fold-0")
    loops(run, (9.0, 90, 9, 8.0, 80), training="fold-1")
    assert read_run(TRIAL, run).seconds == 1.0


def test_loops_of_which_one_was_left_are_no_measurement(run):
    loops(run, (3.0, 30, 6, 1.0, 15), None)
    with pytest.raises(RankupError) as caught:
        read_run(TRIAL, run)
    assert caught.value.code == "nothing-measured"


def logs(run, *accuracies):
    loops(run, (3.0, 30, 6, 1.0, 15))
    with RecordWriter(run.records / "epochs.jsonl") as records:
        for number, accuracy in enumerate(accuracies, 1):
            records.write(
                "epoch", training="", epoch=number, seconds=3.0, steps=6, metrics={"accuracy": accuracy}
            )
    return read_run(TRIAL, run)


@pytest.mark.parametrize(
    ("logged", "told"), [(95.5, 0.955), (0.955, 0.955), (1.0, 1.0), (100.0, 1.0), (250.0, 250.0)]
)
def test_an_accuracy_may_be_logged_in_percent(run, logged, told):
    (((one,)),) = with_shares([[logs(run, logged)]])
    assert one.accuracy == pytest.approx(told)


def test_nine_tenths_of_a_percent_are_not_ninety_percent(tmp_path):
    """In the same study other runs, or other epochs of the same run, have logged more than 1."""
    first = logs(RunDir.create(tmp_path, "first"), 10.2, 0.9)
    other = logs(RunDir.create(tmp_path, "other"), 0.8)
    ((bad,), (worse,)) = with_shares([[first], [other]])
    assert (bad.accuracy, worse.accuracy) == (pytest.approx(0.009), pytest.approx(0.008))


@pytest.mark.parametrize(
    ("printed", "seconds"),
    [("3.5", 3.5), ("3.5 min", 210), ("3.5min", 210), ("2 hours in all", 7200), ("120 ms", 0.12), ("3.5s.", 3.5),
     ("3.5 for 10 epochs", 3.5), ("3.5} and more", 3.5), ("2 s (10 epochs)", 2), ("1,5 min", 90)],
)  # fmt: skip
def test_the_unit_behind_the_number_counts(run, printed, seconds):
    (run.logs / "rank-0.out").write_text(f"Training time = {printed}\n")
    found = read_run(TRIAL, run, parse_metric("Training time = ([0-9.,]*[0-9])"))
    assert found.seconds == pytest.approx(seconds)


@pytest.mark.parametrize(
    "printed",
    ["350 images/s", "350 samples per second", "93 %", "3m20s", "1 h 12 min", "1:02:33", "3e-2 s", "5 it/s"],
)
def test_a_number_that_goes_on_or_is_no_time_is_refused(run, printed):
    (run.logs / "rank-0.out").write_text(f"Training time = {printed}\n")
    with pytest.raises(RankupError, match="is not a unit of time") as caught:
        read_run(TRIAL, run, parse_metric("Training time = ([0-9.]+)"))
    assert caught.value.code == "bad-metric"


def test_what_the_first_steps_have_seen_is_a_fact(run):
    seen = {"inputs": "float32 3×4×4", "autocast": "bfloat16"}
    counted = {"seconds": 3.0, "samples": 30, "steps": 6, "warm_seconds": 1.0, "warm_samples": 15}
    with RecordWriter(run.records / "steps.jsonl") as records:
        for first, told in ((0, seen), (6, {})):  # a loop for each epoch: a later one may tell nothing
            records.write("begin", attempt=1, global_step=first, facts={})
            records.write("end", attempt=1, global_step=first + 6, seen=told, **counted)
    facts = read_run(TRIAL, run).facts
    assert {key: facts[key] for key in seen} == seen


def test_the_steps_of_a_run_are_told_by_its_records(run):
    leave_records(run, 1, 5.0)
    with RecordWriter(run.records / "steps.jsonl") as records:
        for number, seconds in enumerate((0.0, 1.0, 2.0, 6.0, 10.0, 14.0, 18.0)):
            records.write("step", epoch=1, global_step=10 * number, seconds=seconds)
    assert read_run(TRIAL, run).facts["step_seconds"] == pytest.approx([0.1, 0.4])


def test_what_is_logged_after_the_last_epoch_is_what_was_reached(run):
    loops(run, (3.0, 30, 6, 1.0, 15))
    with RecordWriter(run.records / "epochs.jsonl") as records:
        records.write(
            "epoch", training="", epoch=1, global_step=6, seconds=3.0, steps=6, metrics={"accuracy": 0.1}
        )
    with RecordWriter(run.records / "steps.jsonl") as records:
        records.write("log", training="", global_step=3, metrics={"accuracy": 0.2, "loss": 3.0})
        records.write("log", training="", global_step=6, metrics={"accuracy": 0.9})
        records.write("log", training="another", global_step=9, metrics={"accuracy": 0.7})
    found = read_run(TRIAL, run)
    assert (found.accuracy, found.loss) == (0.9, None)
