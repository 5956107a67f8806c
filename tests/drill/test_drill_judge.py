"""What a failure cost, from traces of attempts."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from rankup.drill.advice import ADVICE
from rankup.drill.attempts import Training, last_step, training
from rankup.drill.copied_job import JobCopy, JobScript
from rankup.drill.drill import Outcome, not_met
from rankup.drill.failures import FAILURES, NAMES
from rankup.drill.judge import Judge
from rankup.drill.table import as_dict, summary, text

FAILURE = dict(zip(NAMES, FAILURES, strict=True))
JOB = JobScript(
    Path("/p/job.sh"), "#!/bin/bash\n#SBATCH --time=1:00\n#SBATCH --no-requeue\nsrun python train.py\n"
)


def attempt(
    home: Path,
    number: int,
    first: int,
    last: int,
    saves: tuple[int, ...] = (),
    *,
    ends: str = "",
    restored: str = "state",
) -> None:
    """A trace: steps ``first`` + 1 … ``last``; ``ends``: the digest of the weights at the end."""
    folder = home / "attempts" / str(number)
    folder.mkdir(parents=True)
    records = [{"kind": "begin", "time": 0, "step": first, "restored": restored}]
    records += [
        {
            "kind": "step",
            "time": step,
            "step": step,
            "saved": step - 1 in saves,
            "state": {"model/w": "x"},
            "size": 1.0,
        }
        for step in range(first + 1, last + 1)
    ]
    if ends:
        records.append({"kind": "exit", "time": last, "step": last, "saved": 0, "state": {"model/w": ends}})
    (folder / "rank-0.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records))


def outcome(home: Path, name: str | None, steps: int = 20, again: int = 0) -> Outcome:
    (home / "job").mkdir(parents=True, exist_ok=True)
    made = Outcome(
        FAILURE[name] if name else None, JobCopy(home, home / "job" / "job.sh"), step=7, again=again
    )
    made.training = training(home / "attempts", steps if name else 0)
    return made


@pytest.fixture
def judge(tmp_path: Path) -> Judge:
    attempt(tmp_path / "uninterrupted", 1, 0, 20, (5, 10, 15), ends="the weights")
    return Judge(JOB, outcome(tmp_path / "uninterrupted", None))


def test_steps_since_the_last_save_are_lost_and_no_more(tmp_path: Path, judge: Judge):
    attempt(tmp_path / "a", 1, 0, 7, (5,))
    attempt(tmp_path / "a", 2, 5, 20, (10, 15), ends="the weights")
    verdict = judge.verdict(outcome(tmp_path / "a", "preempted"))
    assert (verdict.survived, verdict.lost, verdict.went_on, verdict.result) == (
        True,
        2,
        "by itself",
        "the same",
    )
    assert verdict.minutes == pytest.approx(2 / 60)
    assert verdict.changes == ()


def test_a_launcher_that_starts_the_ranks_again_is_a_start_of_its_own(tmp_path: Path, judge: Judge):
    attempt(tmp_path / "a", 1, 0, 7, (5,))
    attempt(tmp_path / "b", 1, 5, 20, (10, 15), ends="the weights")
    trace = tmp_path / "a" / "attempts" / "1" / "rank-0.jsonl"
    trace.write_text(trace.read_text() + (tmp_path / "b" / "attempts" / "1" / "rank-0.jsonl").read_text())
    verdict = judge.verdict(outcome(tmp_path / "a", "preempted"))
    assert (verdict.survived, verdict.lost, verdict.went_on) == (True, 2, "by itself")


def test_a_job_that_begins_anew_has_not_survived_although_its_weights_are_the_same(
    tmp_path: Path, judge: Judge
):
    attempt(tmp_path / "a", 1, 0, 7, (5,))
    attempt(tmp_path / "a", 2, 0, 20, (5, 10, 15), ends="the weights")
    verdict = judge.verdict(outcome(tmp_path / "a", "preempted"))
    assert (verdict.survived, verdict.lost) == (False, 7)
    assert [(change.code, change.place) for change in verdict.changes] == [("begins-anew", "job.sh:4")]


def test_other_weights_at_the_end_are_said(tmp_path: Path, judge: Judge):
    attempt(tmp_path / "a", 1, 0, 7, (5,))
    attempt(tmp_path / "a", 2, 5, 20, ends="others")
    made = outcome(tmp_path / "a", "rank-killed")
    (tmp_path / "a" / "attempts" / "1" / "die").touch()
    made.training.starts[-1].size = 1.1
    verdict = judge.verdict(made)
    assert (verdict.survived, verdict.result) == (False, "other weights")
    assert [change.code for change in verdict.changes] == ["other-result"]
    judge.same_again = False
    assert "two uninterrupted runs differ" in judge.verdict(made).result


def test_a_training_that_stops_early_without_an_error_is_not_at_its_end(tmp_path: Path, judge: Judge):
    attempt(tmp_path / "a", 1, 0, 7, (5,), ends="asked to stop")
    attempt(tmp_path / "a", 2, 7, 18, ends="one epoch too few")
    verdict = judge.verdict(outcome(tmp_path / "a", "time-limit", again=2))
    assert (verdict.survived, verdict.result) == (False, "an end after 18 of 20 steps")
    assert {change.code for change in verdict.changes} == {"other-result", "not-requeued"}


def test_a_cancelled_job_must_stay_cancelled_until_it_is_submitted_again(tmp_path: Path, judge: Judge):
    attempt(tmp_path / "a", 1, 0, 7, (5,))
    attempt(tmp_path / "a", 2, 5, 20, ends="the weights")
    assert judge.verdict(outcome(tmp_path / "a", "cancelled", again=1)).survived
    verdict = judge.verdict(outcome(tmp_path / "a", "cancelled"))
    assert [change.code for change in verdict.changes] == ["cannot-be-cancelled"] and not verdict.survived


def test_a_failure_that_did_not_happen_is_not_survived(tmp_path: Path, judge: Judge):
    attempt(tmp_path / "a", 1, 0, 20, ends="the weights")
    made = outcome(tmp_path / "a", "preempted")
    assert not_met(made, "") == "the job did not come to step 7"
    made.reached = True
    assert not_met(made, "") == "it did not stop the job"
    assert not_met(outcome_reached(tmp_path / "a", "disk-full"), "full") == "it did not meet the training"
    (tmp_path / "a" / "attempts" / "1" / "full").touch()
    assert not_met(outcome_reached(tmp_path / "a", "disk-full"), "full") == ""
    made.not_tried = not_met(made, "")
    verdict = judge.verdict(made)
    assert not verdict.survived
    assert summary([verdict]) == "0 of 0 survived, 0 of them by themselves; lost no steps; 1 not tried"


def outcome_reached(home: Path, name: str) -> Outcome:
    made = outcome(home, name)
    made.reached = True
    return made


def test_the_last_step_is_known_from_the_end_of_the_newest_trace(tmp_path: Path):
    assert last_step(tmp_path) == 0
    attempt(tmp_path, 1, 0, 7)
    assert last_step(tmp_path / "attempts") == 7


def test_temporary_files_and_processes_that_are_left_are_named(tmp_path: Path, judge: Judge):
    attempt(tmp_path / "a", 1, 0, 7, (5,))
    attempt(tmp_path / "a", 2, 5, 20, ends="the weights")
    made = outcome(tmp_path / "a", "preempted")
    (tmp_path / "a" / "job" / "last.pt.tmp").touch()
    (tmp_path / "a" / "job" / "slurm-17.out").touch()
    judge.left_processes = {"preempted": ["process 7 on node1: python train.py"]}
    verdict = judge.verdict(made)
    assert verdict.left == ("last.pt.tmp", "process 7 on node1: python train.py") and not verdict.survived


def dead_rank(home: Path, record: str) -> Outcome:
    """In job 5 a rank died; job 6 went on."""
    attempt(home, 1, 0, 7, (5,))
    attempt(home, 2, 5, 20, (10,), ends="the weights")
    for number, job in ((1, "5"), (2, "6")):
        (home / "attempts" / str(number) / "job").write_text(f"{job} 1700000000\n")
    made = outcome(home, "rank-killed", again=1)
    made.records = [f"job 5: {record}", "job 6: JobState COMPLETED, ExitCode 0:0"]
    return made


@pytest.mark.parametrize(
    ("record", "hidden"),
    [
        ("JobState COMPLETED, ExitCode 0:0", True),
        ("job_state F, Exit_status 0, run_count 1", True),
        ("JobState FAILED, ExitCode 1:0", False),
        ("job_state F, Exit_status 1, run_count 1", False),
    ],
)
def test_a_job_that_ends_well_for_the_scheduler_although_a_rank_died_hides_it(
    tmp_path: Path, judge: Judge, record: str, hidden: bool
):
    verdict = judge.verdict(dead_rank(tmp_path / "a", record))
    assert verdict.survived
    assert [change.code for change in verdict.changes] == ["hides-its-end"] * hidden + ["not-started-again"]


def test_a_rank_that_its_launcher_starts_again_in_the_same_job_hides_nothing(tmp_path: Path, judge: Judge):
    made = dead_rank(tmp_path / "a", "JobState COMPLETED, ExitCode 0:0")
    (tmp_path / "a" / "attempts" / "2" / "job").write_text("5 1700000000\n")
    assert "hides-its-end" not in [change.code for change in judge.verdict(made).changes]


def test_each_row_of_advice_has_a_code_of_its_own():
    codes = [row.code for row in ADVICE]
    assert len(codes) == len({*codes})


def test_two_jobs_at_once_are_counted_by_what_they_train_twice(tmp_path: Path, judge: Judge):
    attempt(tmp_path / "a", 1, 0, 20, (5, 10, 15), ends="the weights")
    attempt(tmp_path / "a", 2, 5, 20, (10, 15), ends="the weights")
    verdict = judge.verdict(outcome(tmp_path / "a", "second-job"))
    assert verdict.lost == 15
    assert [change.code for change in verdict.changes] == ["two-at-once"]


def test_the_answer_says_what_happened_in_a_line_each_and_as_json(tmp_path: Path, judge: Judge):
    attempt(tmp_path / "a", 1, 0, 7, (5,))
    attempt(tmp_path / "a", 2, 5, 20, ends="the weights")
    made = outcome(tmp_path / "a", "preempted", again=1)
    made.records, made.states = ["job 7: JobState COMPLETED"], ["7 RUNNING", "7 PENDING"]
    verdict = judge.verdict(made)
    said = text(judge.reference, [verdict], [])
    assert "no-requeue" in said and "job.sh:3" in said
    assert said.splitlines()[-1] == "1 of 1 survived, 0 of them by themselves; lost 2 steps"
    (row,) = as_dict(judge.reference, [verdict], [])["failures"]
    assert (row["steps_lost"], row["went_on"], row["submitted_again"]) == (
        2,
        "when it was submitted again",
        1,
    )
    assert row["states"] == ["7 RUNNING", "7 PENDING"] and row["records"] == ["job 7: JobState COMPLETED"]


def test_without_a_trace_there_is_no_training():
    assert (Training(()).last, Training(()).done, Training(()).step_seconds) == (0, False, 0.0)
