"""The trials of a study, one after the other and as jobs; stand-ins for ``execute`` and the scheduler."""

from __future__ import annotations

import signal
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
from studies import leave_records

from rankup.core.rundir import RunDir
from rankup.errors import RankupError
from rankup.resolve.here import resolve_here
from rankup.run.execute import Result
from rankup.scale import runner
from rankup.scale.journal import Journal, StudyPlan
from rankup.scale.results import read_results
from rankup.scale.runner import collect, run_as_jobs, run_here
from rankup.scale.summary import report, write
from rankup.schedulers.base import JobState

PLAN = StudyPlan(command=["train.py"], grid={"nproc": (1, 2)}, repeats=2)
FAILED = RankupError("worker-failed", "rank 1 failed first: boom", context="logs", exit_code=1)


class Quiet:
    """A view that counts trials."""

    def __init__(self):
        self.begun, self.done, self.failures = [], [], []

    def begins(self, number, total, trial):
        self.begun.append((number, trial))

    def submitted(self, trial, job):
        pass

    def ended(self, trial, measured, failure):
        self.done.append(trial)
        if failure:
            self.failures.append(failure["message"])

    def line(self, rank, stream, text):
        pass

    def tick(self, run):
        pass


def job_for(folder):
    def job_of(trial):
        flags = {"name": "trials", "nproc_per_node": trial.asked["nproc"], "runs_root": folder}
        return resolve_here(flags, command=("true",))

    return job_of


def stand_in(outcomes, started):
    """``outcomes``: number of a run → its exit code and error, or something to call."""

    def execute(job, view):
        run = RunDir.create(job.spec.runs_root, job.spec.name)
        started.append(job.spec.nproc_per_node)
        outcome = outcomes.get(len(started), (0, None))
        if callable(outcome):
            outcome = outcome(run)
        elif outcome[0] == 0:
            leave_records(run, job.spec.nproc_per_node, 10 / job.spec.nproc_per_node)
        return Result(outcome[0], run, None, None, 1.0, outcome[1])

    return execute


def measure(journal, outcomes=(), **more):
    view, started = Quiet(), []
    execute = stand_in(dict(outcomes), started)
    run_here(journal, job_for(journal.folder), view, execute=execute, **more)
    return view, started


@pytest.fixture
def journal(tmp_path):
    made = Journal.create(tmp_path / "study", PLAN)
    yield made
    made.close()


def test_warm_ups_run_and_do_not_count(journal):
    view, started = measure(journal)
    assert started[:4] == [1, 2, 1, 2] and sorted(started[4:]) == [1, 2]
    assert [number for number, _ in view.begun] == [1, 2, 3, 4, 5, 6]
    study = collect(journal)
    assert [[run.repeat for run in one.runs] for one in study.configurations] == [[1, 2], [1, 2]]
    assert [one.runs[0].seconds for one in study.configurations] == [10.0, 5.0]


def test_a_configuration_that_fails_does_not_lose_the_others(journal):
    view, started = measure(journal, {2: (1, FAILED)})
    assert started == [1, 2, 1, 1]
    study = collect(journal)
    assert [len(one.runs) for one in study.configurations] == [2, 0]
    assert view.failures == ["nproc=2: the warm-up failed: rank 1 failed first: boom"]
    made = report(study)
    assert not made.comparable and made.ratios == []
    assert "error: nproc=2: the warm-up failed: rank 1 failed first: boom [worker-failed]" in made.text


def test_a_failed_repeat_keeps_what_was_measured_before(journal):
    measure(journal, {4: (1, FAILED)})
    one, two = collect(journal).configurations
    assert (len(one.runs), len(two.runs), two.failure["code"]) == (2, 0, "worker-failed")


def test_a_job_that_cannot_start_is_a_failure_of_its_configuration(journal):
    def refuse(run):
        raise RankupError("too-few-gpus", "the job asks for 2")

    view, started = measure(journal, {2: refuse})
    assert started == [1, 2, 1, 1]
    assert view.failures == ["nproc=2: the warm-up failed: the job asks for 2"]


def test_sigterm_ends_the_study_although_the_run_at_hand_has_saved(journal):
    """As at the time limit of an allocation: the run ends with 75, and is measured again later."""
    with pytest.raises(RankupError, match="ended by SIGTERM after 2 of 6 runs") as caught:
        measure(journal, {3: (75, None)})
    assert caught.value.exit_code == 143
    _, started = measure(journal)
    assert len(started) == 4


def test_records_cut_short_by_a_kill_are_a_failure_and_no_traceback(journal):
    def cut(run):
        leave_records(run, ends=False)
        return 0, None

    view, _ = measure(journal, {3: cut})
    assert view.failures == [
        "nproc=1: repeat 1 failed: the run left no records of a training that came to its end"
    ]


@pytest.mark.parametrize("number", range(1, 7))
def test_what_has_ended_is_not_run_again(tmp_path, number):
    journal = Journal.create(tmp_path / "study", PLAN)
    with pytest.raises(RankupError, match=f"ended by SIGINT after {number - 1} of 6 runs") as caught:
        measure(journal, {number: (130, None)})
    journal.close()
    assert caught.value.exit_code == 130
    assert f"rankup scale --resume {tmp_path / 'study'} goes on" in caught.value.hint
    again = Journal.open(tmp_path / "study")
    _, started = measure(again)
    assert len(started) == 7 - number
    assert [len(one.runs) for one in collect(again).configurations] == [2, 2]
    again.close()


def test_ctrl_c_between_two_runs_is_heeded_as_well(journal):
    class Predictor:
        def before(self, trial):
            raise KeyboardInterrupt

    with pytest.raises(RankupError, match="ended by SIGINT after 0 of 6 runs"):
        measure(journal, predictor=Predictor())


def test_ctrl_c_as_a_run_ends_well_keeps_the_run_and_ends_the_study(journal):
    view, started = Quiet(), []
    ends_well = stand_in({}, started)

    def execute(job, view):
        result = ends_well(job, view)
        result.interrupts.first = signal.SIGINT
        return result

    with pytest.raises(RankupError, match="ended by SIGINT after 1 of 6 runs"):
        run_here(journal, job_for(journal.folder), view, execute=execute)
    assert len(started) == 1


def test_runs_that_somebody_has_deleted_are_told(journal):
    measure(journal)
    path = Path(collect(journal).configurations[1].runs[0].path)
    (path / "records" / "steps.jsonl").unlink()
    one, two = collect(journal).configurations
    assert (len(one.runs), len(two.runs), two.failure["code"]) == (2, 1, "nothing-measured")


def test_results_hold_every_run_and_what_follows_from_them(tmp_path):
    plan = replace(
        PLAN, repeats=3, machine={"hostname": "node1", "cpu_count": 8, "cpus": list(range(8))}, load=0.1
    )
    journal = Journal.create(tmp_path / "study", plan)
    measure(journal)
    made = report(collect(journal))
    path = write(made, journal.folder)
    assert [one.speedup for one in made.ratios] == [2.0]
    assert read_results(path) == replace(
        read_results(path), configurations=read_results(path).configurations, machine=plan.machine
    )
    assert [[r.seconds for r in c.runs] for c in read_results(path).configurations] == [[10] * 3, [5] * 3]
    assert "speed-up" in (path.parent / "table.txt").read_text()
    journal.close()


# ------------------------------------------------------------------------- as jobs


class Killed(BaseException):
    """The process ends here: nothing of ours runs any more."""


class Queue:
    """A scheduler that runs at most ``at_once`` jobs, in the order in which their dependencies allow it."""

    def __init__(self, monkeypatch):
        self.jobs = []  # (run directory, processes, ids that it waits for)
        self.ended, self.most = {}, 0
        self.refuse = {}
        self.killed_before = self.killed_after = 0  # the submit of this job
        monkeypatch.setattr(runner, "submit", self.submit)
        monkeypatch.setattr(runner, "load", lambda path: path)
        monkeypatch.setattr(runner, "query_statuses", self.statuses)

    def submit(self, job, *, env, made):
        if error := self.refuse.pop(len(self.jobs) + 1, None):
            raise error
        run = RunDir.create(job.spec.runs_root, job.spec.name)
        made(run)
        if self.killed_before == len(self.jobs) + 1:
            self.killed_before = 0
            raise Killed
        self.jobs.append((run, job.spec.nproc_per_node, job.spec.after_any))
        number = str(len(self.jobs))
        (run.path / "jobs").write_text(f"{number}\n")
        if self.killed_after == len(self.jobs):
            self.killed_after = 0
            raise Killed
        return SimpleNamespace(run=run, ids=lambda: (number,))

    def running(self):
        return [
            number
            for number, (_, _, after) in enumerate(self.jobs, 1)
            if number not in self.ended and all(int(one) in self.ended for one in after)
        ]

    def end_one(self, seconds=None):
        """The first of the running jobs ends; what a study's sleep lets happen."""
        running = self.running()
        self.most = max(self.most, len(running))
        if running:
            run, processes, _ = self.jobs[running[0] - 1]
            leave_records(run, processes)
            self.ended[running[0]] = 0

    def statuses(self, paths):
        by_path = {str(run.path): number for number, (run, _, _) in enumerate(self.jobs, 1)}
        return [self.status(by_path[str(path)]) for path in paths], []

    def status(self, number):
        over = number in self.ended
        state = JobState.DONE if over else JobState.RUNNING
        return SimpleNamespace(
            id=str(number), state=state, settled=over, exit_code=self.ended.get(number), reason=""
        )


@pytest.fixture
def queue(monkeypatch):
    return Queue(monkeypatch)


def submitted(journal, queue, sleep=None):
    view = Quiet()
    run_as_jobs(journal, job_for(journal.folder), view, {}, sleep=sleep or queue.end_one)
    return view


@pytest.mark.parametrize("at_once", [1, 2, 3, 9])
def test_at_most_k_jobs_run_at_once(tmp_path, queue, at_once):
    journal = Journal.create(tmp_path / "study", replace(PLAN, site="slurm", at_once=at_once))
    submitted(journal, queue)
    assert len(queue.jobs) == 6
    assert queue.most == min(at_once, 6)
    assert [len(one.runs) for one in collect(journal).configurations] == [2, 2]
    journal.close()


@pytest.mark.parametrize("after", range(6))
def test_after_a_logout_the_study_waits_for_its_jobs_and_submits_none_twice(tmp_path, queue, after):
    journal = Journal.create(tmp_path / "study", replace(PLAN, site="slurm", at_once=2))

    def ctrl_c(seconds):
        if len(queue.ended) == after:
            raise KeyboardInterrupt
        queue.end_one()

    with pytest.raises(RankupError, match=r"stays? in the queue") as caught:
        submitted(journal, queue, ctrl_c)
    assert f"rankup cancel --all --runs-root {journal.folder}" in caught.value.hint
    journal.close()
    queue.end_one()  # meanwhile
    again = Journal.open(tmp_path / "study")
    submitted(again, queue)
    assert len(queue.jobs) == 6 and queue.most <= 2
    assert [len(one.runs) for one in collect(again).configurations] == [2, 2]
    again.close()


def test_what_was_not_submitted_yet_is_submitted_by_a_resume(tmp_path, queue):
    journal = Journal.create(tmp_path / "study", replace(PLAN, site="slurm", at_once=2))
    queue.refuse = {4: KeyboardInterrupt()}
    with pytest.raises(RankupError, match="after 0 of 6 runs; 3 jobs stay in the queue"):
        submitted(journal, queue)
    submitted(journal, queue)
    assert len(queue.jobs) == 6 and queue.most == 2
    journal.close()


@pytest.mark.parametrize("number", [1, 4, 6])
@pytest.mark.parametrize("when", ["killed_before", "killed_after"])
def test_a_study_that_is_killed_while_it_submits_submits_no_job_twice(tmp_path, queue, number, when):
    journal = Journal.create(tmp_path / "study", replace(PLAN, site="slurm"))
    setattr(queue, when, number)
    with pytest.raises(Killed):
        submitted(journal, queue)
    journal.close()
    again = Journal.open(tmp_path / "study")
    submitted(again, queue)
    assert len(queue.jobs) == 6
    assert [len(one.runs) for one in collect(again).configurations] == [2, 2]
    again.close()


def test_a_full_queue_is_tried_again_when_a_job_has_ended(tmp_path, queue):
    journal = Journal.create(tmp_path / "study", replace(PLAN, site="slurm"))
    queue.refuse = {4: RankupError("too-many-jobs", "no more", exit_code=1)}
    submitted(journal, queue)
    assert len(queue.jobs) == 6
    journal.close()


def test_a_configuration_that_the_scheduler_refuses_does_not_lose_the_others(tmp_path, queue):
    journal = Journal.create(tmp_path / "study", replace(PLAN, site="slurm"))
    queue.refuse = {2: RankupError("too-many-nodes", "no such node")}
    view = submitted(journal, queue)
    assert view.failures == ["nproc=2: the warm-up failed: no such node"]
    assert [len(one.runs) for one in collect(journal).configurations] == [2, 0]
    journal.close()


def test_a_job_that_fails_is_a_failure_of_its_configuration(tmp_path, queue):
    journal = Journal.create(tmp_path / "study", replace(PLAN, site="slurm"))

    def fails(seconds):
        if 4 not in queue.ended:
            queue.ended[4] = 7
        queue.end_one()

    view = submitted(journal, queue, fails)
    assert view.failures == ["nproc=2: repeat 1 failed: job 4: exit code 7"]
    assert collect(journal).configurations[1].failure["code"] == "run-failed"
    journal.close()


def test_a_job_that_vanished_without_its_last_files_ends_the_waiting(tmp_path, queue, monkeypatch):
    journal = Journal.create(tmp_path / "study", replace(PLAN, site="slurm"))
    monkeypatch.setattr(runner, "SETTLE_S", 0.0)
    whole = queue.status

    def killed(number):
        status = whole(number)
        if number == 3:
            status.state, status.settled, status.exit_code, status.reason = (
                JobState.FAILED,
                False,
                1,
                "node failure",
            )
        return status

    queue.status = killed
    view = submitted(journal, queue)
    assert view.failures == ["nproc=1: repeat 1 failed: job 3: node failure"]
    journal.close()


def test_a_job_that_was_cancelled_while_it_waited_is_a_failure_although_it_has_no_exit_code(tmp_path, queue):
    journal = Journal.create(tmp_path / "study", replace(PLAN, site="slurm"))
    whole = queue.status

    def cancelled(number):
        status = whole(number)
        if number == 1:
            status.state, status.settled, status.exit_code = JobState.CANCELLED, True, None
        return status

    queue.status = cancelled
    view = submitted(journal, queue)
    assert view.failures == ["nproc=1: the warm-up failed: job 1: cancelled"]
    journal.close()


def test_a_pattern_that_does_not_match_is_found_out_by_the_warm_up(tmp_path):
    journal = Journal.create(tmp_path / "study", replace(PLAN, metric="time = ([0-9.]+)"))
    view, started = measure(journal)
    assert started == [1, 2]  # the warm-ups
    assert [failure.split(":")[1].strip() for failure in view.failures] == ["the warm-up failed"] * 2
    assert collect(journal).configurations[0].failure["code"] == "metric-not-found"
    journal.close()


def test_a_full_disk_ends_the_study_and_fails_no_configuration(journal):
    full = RankupError("unwritable-directory", "cannot write to the run directory: No space left on device")

    def refuse(run):
        raise full

    with pytest.raises(RankupError, match="No space left") as caught:
        measure(journal, {4: refuse})
    assert f"rankup scale --resume {journal.folder}" in caught.value.hint
    assert not any(state.ended == "failed" for state in journal.states().values())
    measure(journal)
    assert [len(one.runs) for one in collect(journal).configurations] == [2, 2]


def test_results_that_cannot_be_written_are_one_error(journal, monkeypatch):
    def full(*_, **__):
        raise OSError(28, "No space left on device")

    measure(journal)
    monkeypatch.setattr("rankup.scale.summary.write_atomic", full)
    with pytest.raises(RankupError, match="cannot write the results: No space left on device"):
        write(report(collect(journal)), journal.folder)
