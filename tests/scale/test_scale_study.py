"""The runs of a study, one after the other; a stand-in for ``execute`` writes what real runs would."""

from __future__ import annotations

import json
import os
import signal

import pytest
from rankup.scale.grid import Trial, trials
from rankup.scale.measured import read_run
from rankup.scale.study import measure
from studies import IDLE, run

from rankup.core.records import RecordWriter
from rankup.core.rundir import RunDir
from rankup.errors import RankupError
from rankup.resolve.here import resolve_here
from rankup.run.execute import Result
from rankup.scale.results import read_results
from rankup.scale.summary import report, results_of, write


class Quiet:
    """A view that counts turns."""

    def __init__(self):
        self.begun, self.done = [], []

    def begins(self, number, total, turn):
        self.begun.append(f"{number}/{total}")

    def ended(self, measured):
        self.done.append(measured.turn)

    def line(self, rank, stream, text):
        pass

    def tick(self, run):
        pass


def study_of(tmp_path, outcomes=(), repeats=2, progress=None, **facts):
    """Measure 1 and 2 processes; ``outcomes`` maps the number of a run to (code, error) or a function to call."""
    order, outcomes = trials([1, 2], repeats), dict(outcomes)
    jobs = {
        turn: resolve_here(
            {"name": "study", "nproc_per_node": turn.processes, "runs_root": tmp_path}, command=("true",)
        )
        for turn in order
    }
    started = []

    def execute(job, view):
        spec = job.spec
        folder = RunDir.create(spec.runs_root, spec.name)
        started.append(spec.nproc_per_node)
        outcome = outcomes.get(len(started), (0, None))
        if callable(outcome):
            outcome = outcome()
        if outcome[0] == 0:
            with RecordWriter(folder.records / "epochs.jsonl") as records:
                records.write("epoch", steps=23)
                records.write(
                    "summary", **run(spec.nproc_per_node, 10 / spec.nproc_per_node, **facts).summary
                )
        return Result(outcome[0], folder, None, None, 1.0, outcome[1])

    return measure(order, jobs.__getitem__, progress or Quiet(), execute=execute), started


def test_warm_ups_run_and_do_not_count(tmp_path):
    progress = Quiet()
    study, started = study_of(tmp_path, progress=progress)
    assert started == [1, 2, 1, 2, 2, 1]
    assert [(r.turn.processes, r.turn.repeat) for r in study.runs] == [(1, 1), (2, 1), (2, 2), (1, 2)]
    assert progress.begun == [f"{n}/6" for n in range(1, 7)]
    assert [r.steps for r in study.runs] == [23] * 4


def test_the_study_lies_beside_its_runs_and_is_not_made_before_it_has_results(tmp_path):
    study, _ = study_of(tmp_path)
    assert study.folder.parent == study.runs[0].path.parent == tmp_path / "study"
    assert study.folder.name.startswith("scale-")
    assert not study.folder.exists()


def test_a_failed_warm_up_ends_it_with_the_reason(tmp_path):
    failure = RankupError("worker-failed", "rank 1 failed first: boom", context="logs", exit_code=1)
    with pytest.raises(
        RankupError, match="the warm-up of 2 processes failed: rank 1 failed first: boom"
    ) as caught:
        study_of(tmp_path, {2: (1, failure)})
    assert (caught.value.code, caught.value.context, caught.value.exit_code) == ("worker-failed", "logs", 1)


def test_a_failed_repeat_keeps_what_was_measured_but_no_ratio(tmp_path):
    failure = RankupError("worker-failed", "rank 1 failed first: boom", exit_code=1)
    study, started = study_of(tmp_path, {5: (1, failure)})
    assert started == [1, 2, 1, 2, 2]
    made = report(results_of(study, IDLE))
    assert not made.comparable
    assert "error: repeat 2 of 2 processes failed: rank 1 failed first: boom [worker-failed]" in made.text
    assert made.ratios == []
    assert [row.seconds.count for row in made.rows] == [1, 1]


def test_a_first_repeat_that_fails_leaves_the_error_alone(tmp_path):
    study, _ = study_of(tmp_path, {3: (75, None)})
    made = report(results_of(study, IDLE))
    assert made.rows == []
    assert made.text.startswith("error: repeat 1 of 1 process failed: it was stopped [run-stopped]")


def test_an_interrupted_run_ends_the_study_with_the_signal_as_its_code(tmp_path):
    with pytest.raises(RankupError, match="ended by SIGINT after 3 of 6 runs") as caught:
        study_of(tmp_path, {4: (130, None)})
    assert caught.value.exit_code == 130


def test_an_interrupt_between_two_runs_is_heeded_as_well(tmp_path):
    def interrupted_at_the_very_end():
        os.kill(os.getpid(), signal.SIGINT)

    with pytest.raises(RankupError, match="SIGINT"):
        study_of(tmp_path, {4: interrupted_at_the_very_end})


def test_a_run_that_ended_well_without_its_records_is_an_error(tmp_path):
    path = RunDir.create(tmp_path, "study")
    with pytest.raises(RankupError, match="left 0 summaries") as caught:
        read_run(Trial(1, 1), path)
    assert (caught.value.code, caught.value.exit_code) == ("no-summary", 1)


def test_results_hold_every_run_and_what_follows_from_them(tmp_path):
    study, _ = study_of(tmp_path, repeats=3, threads=1)
    path = write(report(results_of(study, IDLE)), study.folder)
    results = json.loads(path.read_text())
    assert results["comparable"] is True
    assert [one["speedup"] for one in results["ratios"]] == [2.0]
    assert [[r["seconds"] for r in c["runs"]] for c in results["configurations"]] == [[10] * 3, [5] * 3]
    assert results["machine"]["cpu_count"] == 8
    assert results["configurations"][0]["runs"][0]["facts"]["torch"] == "2.13.0"
    assert read_results(path).as_dict() == json.loads(json.dumps(results_of(study, IDLE).as_dict()))
    assert "speed-up" in (path.parent / "table.txt").read_text()
    assert (path.parent.stat().st_mode & 0o777, path.stat().st_mode & 0o777) == (0o700, 0o600)


def test_unequal_work_is_reported_with_runtimes_and_without_ratios(tmp_path):
    study, _ = study_of(tmp_path)
    study.runs[0] = run(1, 9.87, samples=1, steps=23)
    made = report(results_of(study, IDLE))
    assert "the number of samples trained differs" in made.text
    assert "9.87–10.00" in made.text
    assert "efficiency  " not in made.text
    assert made.ratios == []
    assert made.text.rstrip().endswith("not comparable: no speed-up and no efficiency")
