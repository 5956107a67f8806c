"""A run is measured by its own records, or by a pattern over what it printed."""

from __future__ import annotations

import pytest
from studies import leave_records

from rankup.core.records import RecordWriter
from rankup.core.rundir import RunDir
from rankup.errors import RankupError
from rankup.scale.plan import Trial
from rankup.scale.read_run import parse_metric, read_breakdown, read_run

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
