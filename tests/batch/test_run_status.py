"""How a run stands: the scheduler's word and the run directory's, where they agree, differ, or one is missing."""

from __future__ import annotations

import pytest

from rankup.batch.status import status_of
from rankup.batch.store import SubmittedRun
from rankup.core.arrays import indices, task_id
from rankup.core.rundir import RunDir
from rankup.schedulers.base import JobState, JobStatus
from rankup.spec.jobspec import JobSpec


@pytest.fixture
def job(tmp_path):
    """Makes a run with these files in its directory: ``job(jobs="1\\n", outcome="done")``."""

    def make(array="", **files):
        spec = JobSpec(command=("true",), name="mine", folder=tmp_path, array=array)
        for name, text in files.items():
            path = tmp_path / name.replace("__", "/").replace("task_", "task-")
            path.parent.mkdir(exist_ok=True)
            path.write_text(text)
        return SubmittedRun(RunDir(tmp_path), spec, "slurm", "slurm")

    return make


def says(*statuses):
    return {status.id: status for status in statuses}


BEGAN = {"jobs": "1\n", "attempts": "1 1 0 node1\n"}
PENDING = JobStatus("1", JobState.PENDING, reason="waits for free nodes")
RUNNING = JobStatus("1", JobState.RUNNING, nodes="node1")
FAILED = JobStatus("1", JobState.FAILED, reason="ran out of its time limit (--time)")
OUT_OF_TIME = JobStatus("1", JobState.FAILED, reason="ran out of its time limit", out_of_time=True)
CANCELLED = JobStatus("1", JobState.CANCELLED)


@pytest.mark.parametrize(
    ("files", "said", "state", "code", "settled"),
    [
        # The scheduler knows the job.
        ({"jobs": "1\n"}, PENDING, JobState.PENDING, None, False),
        (
            {**BEGAN, "outcome": "done"},
            RUNNING,
            JobState.RUNNING,
            None,
            False,
        ),  # ranks are done, the job is not
        (
            {**BEGAN, "outcome": "done", "exit_code": "0"},
            JobStatus("1", JobState.DONE),
            JobState.DONE,
            0,
            True,
        ),
        ({**BEGAN, "outcome": "failed", "exit_code": "3"}, FAILED, JobState.FAILED, 3, True),
        ({**BEGAN, "outcome": "done"}, FAILED, JobState.FAILED, None, False),  # ended before its script's end
        ({**BEGAN, "outcome": "requeue", "exit_code": "75"}, FAILED, JobState.FAILED, 75, False),
        ({**BEGAN, "outcome": "requeue", "STOP": "user 9"}, FAILED, JobState.CANCELLED, None, False),
        ({**BEGAN, "outcome": "requeue", "STOP": "terminated 9"}, OUT_OF_TIME, JobState.FAILED, None, False),
        ({"jobs": "1\n", "outcome": "cancelled"}, CANCELLED, JobState.CANCELLED, None, True),
        # It has forgotten it.
        ({**BEGAN, "outcome": "done", "exit_code": "0"}, None, JobState.DONE, 0, True),
        ({**BEGAN, "exit_code": "0"}, None, JobState.DONE, 0, False),
        ({**BEGAN, "exit_code": "9"}, None, JobState.FAILED, 9, False),
        (BEGAN, None, JobState.FAILED, None, False),
        ({"jobs": "1\n"}, None, JobState.FAILED, None, False),
    ],
)
def test_state_and_code_follow_from_both(job, files, said, state, code, settled):
    standing = status_of(job(**files), says(said) if said else {})
    assert (standing.state, standing.code, standing.settled) == (state, code, settled)


def test_a_requeued_job_says_how_often_and_why_it_waits(job):
    run = job(**BEGAN, outcome="requeue", exit_code="75", requeues="2")
    assert status_of(run, says(PENDING)).reason == "requeued 2 of 10 times, waits for free nodes"


def test_a_job_that_was_not_requeued_says_so(job):
    run = job(**BEGAN, outcome="requeue", exit_code="75", requeues="10")
    standing = status_of(run, says(CANCELLED))
    assert "after 10 requeues" in standing.reason
    assert standing.exit_code == 75


def test_a_successor_takes_over(job):
    run = job(jobs="1\n2\n", attempts="1 1 0 n\n", outcome="requeue", exit_code="75", requeues="1")
    standing = status_of(
        run, says(JobStatus("1", JobState.FAILED, code=75), JobStatus("2", JobState.PENDING))
    )
    assert (standing.id, standing.state) == ("2", JobState.PENDING)


def test_successors_that_wait_do_not_keep_a_run_alive_that_is_done(job):
    run = job(jobs="1\n2\n", attempts="1 1 0 n\n", outcome="done", exit_code="0")
    standing = status_of(run, says(JobStatus("1", JobState.DONE, code=0), JobStatus("2", JobState.PENDING)))
    assert (standing.id, standing.state, standing.code) == ("1", JobState.DONE, 0)


def test_an_array_is_as_far_as_its_tasks(job):
    run = job(
        array="0-2", jobs="1\n", task_0__outcome="done", task_0__exit_code="0", task_1__outcome="failed",
        task_1__exit_code="4", task_2__attempts="1 1 0 n\n",
    )  # fmt: skip
    tasks = says(JobStatus("1", JobState.RUNNING), JobStatus("1_2", JobState.RUNNING, nodes="node2"))
    standing = status_of(run, tasks)
    assert standing.state is JobState.RUNNING
    assert {i: task.state.value for i, task in standing.tasks.items()} == {
        0: "done", 1: "failed", 2: "running"
    }  # fmt: skip
    ended = status_of(run, says(JobStatus("1", JobState.DONE), JobStatus("1_2", JobState.DONE, code=0)))
    assert (ended.state, ended.code) == (JobState.FAILED, 4)


def test_a_tasks_successor_counts_for_that_task_alone(job):
    run = job(
        array="0-1", jobs="1[].head\n2.head 1\n", task_0__outcome="done", task_0__exit_code="0",
        task_1__outcome="requeue", task_1__exit_code="75", task_1__requeues="1",
    )  # fmt: skip
    said = says(JobStatus("1[].head", JobState.DONE), JobStatus("1[1].head", JobState.FAILED),
                JobStatus("2.head", JobState.PENDING))  # fmt: skip
    standing = status_of(run, said)
    assert (standing.tasks[0].state, standing.tasks[1].state) == (JobState.DONE, JobState.PENDING)
    assert standing.tasks[1].id == "2.head"


@pytest.mark.parametrize(
    ("array", "expected"),
    [("", []), ("0-3", [0, 1, 2, 3]), ("7", [7]), ("0-6:2,9%4", [0, 2, 4, 6, 9]), ("3,1", [1, 3])],
)
def test_indices_of_an_array(array, expected):
    assert indices(array) == expected


@pytest.mark.parametrize(
    ("job_id", "expected"), [("12", "12_3"), ("12;east", "12_3;east"), ("12[].head", "12[3].head")]
)
def test_ids_of_tasks(job_id, expected):
    assert task_id(job_id, 3) == expected
