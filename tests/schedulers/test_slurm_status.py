"""squeue, sacct and scontrol: what they are asked, and what they answer. Marked *: recorded from SLURM 22.05."""

from __future__ import annotations

import os
import string

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scheduler_samples import said

from rankup.errors import RankupError
from rankup.schedulers.base import JobState, JobStatus, scheduler_named
from rankup.schedulers.slurm.states import STATE_OF, reason_of, state_of

SLURM = scheduler_named("slurm")
ODD_NAME = 'a b|c\n"x"; UserId=0(0) JobState=FAILED é%T'


def squeue(*fields: str) -> str:
    return "\x1e" + "\x1f".join(fields) + "\n"


def sacct(*rows: tuple[str, ...]) -> str:
    header = ("JobID", "State", "ExitCode", "Partition", "NodeList", "ElapsedRaw", "JobName")
    return "".join("\x1f".join(row) + "\n" for row in (header, *rows))


def scontrol(head: str, state: str, tail: str, name: str = "f.sh") -> str:
    """A line of ``scontrol --oneliner show job`` *, but for fields that nobody reads."""
    return (
        f"{head} JobName={name} UserId=root(0) GroupId=root(0) MCS_label=N/A Priority=4294901742 Nice=0 Account=(null) "
        f"QOS=(null) {state} Dependency=(null) Requeue=1 Restarts=0 BatchFlag=1 Reboot=0 {tail} TimeLimit=365-00:00:00 "
        "SubmitTime=2026-11-21T06:47:20 Scheduler=Backfill Partition=main AllocNode:Sid=head:0 ReqNodeList=(null) "
        "ExcNodeList=(null) NodeList=node1 BatchHost=node1 NumNodes=1 Licenses=(null) Command=/shared/f.sh Power= \n"
    )


def test_live_jobs_first_then_the_accounts_then_the_controllers_memory():
    commands = SLURM.status_commands(["12", "13_4"])
    assert [command[0] for command in commands] == ["squeue", "sacct", "scontrol", "scontrol"]
    assert [command[-1] for command in commands] == ["--jobs=12,13_4", "--jobs=12,13_4", "12", "13_4"]


def test_jobs_of_another_cluster_are_asked_for_there():
    commands = SLURM.status_commands(["12", "13;east"])
    assert [command[0] for command in commands if "--clusters=east" in command] == [
        "squeue",
        "sacct",
        "scontrol",
    ]
    assert SLURM.read_status(said(squeue("13", "PENDING", "None", "main", "", "0:00", "n")), ["13;east"])[
        "13;east"
    ] == JobStatus("13;east", JobState.PENDING, "PENDING", queue="main", name="n")


def test_without_ids_all_live_jobs_of_the_user():
    (command,) = SLURM.status_commands([])
    assert command[-1] == f"--user={os.getuid()}"
    answer = squeue("12", "RUNNING", "None", "main", "node1", "0:01", "a") + squeue(
        "13", "PENDING", "Priority", "main", "", "0:00", "b"
    )
    assert {job: status.state for job, status in SLURM.read_status(said(answer), []).items()} == {
        "12": JobState.RUNNING,
        "13": JobState.PENDING,
    }


def test_a_running_job_with_an_odd_name():  # *
    answer = squeue("18", "RUNNING", "None", "main", "node[1-2]", "1-00:02:03", ODD_NAME)
    assert SLURM.read_status(said(answer), ["18"]) == {
        "18": JobStatus(
            "18", JobState.RUNNING, "RUNNING", "", None, "main", "node[1-2]", 86400 + 123, ODD_NAME
        )
    }


def test_a_waiting_job_says_why():  # *
    answer = squeue("20", "PENDING", "DependencyNeverSatisfied", "main", "", "0:00", "ok.sh")
    status = SLURM.read_status(said(answer), ["20"])["20"]
    assert status.state is JobState.PENDING
    assert status.reason.startswith("will never start: a job of --after did not end well")
    assert status.elapsed is None


def test_tasks_of_an_array_are_told_apart_and_summed_up():  # *
    answer = squeue("19_0", "RUNNING", "None", "main", "node1", "0:07", "long.sh") + squeue(
        "19_4", "PENDING", "JobArrayTaskLimit", "main", "", "0:00", "long.sh"
    )
    found = SLURM.read_status(said(answer), ["19"])
    assert found["19_0"].state is JobState.RUNNING
    assert found["19_4"].state is JobState.PENDING
    assert (found["19"].state, found["19"].native) == (JobState.RUNNING, "RUNNING")
    assert found["19"].reason == "1 running, 1 pending"


@pytest.mark.parametrize(
    ("tasks", "indices"),
    [
        ("0,2,4%1", [0, 2, 4]),  # *
        ("0-2,7%2", [0, 1, 2, 7]),
        ("0-8:4", [0, 4, 8]),
        ("3", [3]),
        ("0-1,5,...", [0, 1, 5]),  # a long list, cut short
    ],
)
def test_waiting_tasks_may_share_a_line(tasks: str, indices: list[int]):
    answer = squeue(f"19_[{tasks}]", "PENDING", "Resources", "main", "", "0:00", "n")
    found = SLURM.read_status(said(answer), ["19"])
    assert sorted(set(found) - {"19"}) == sorted(f"19_{index}" for index in indices)


def test_a_task_can_be_asked_for_alone():
    answer = squeue("19_2", "PENDING", "Resources", "main", "", "0:00", "n")
    assert list(SLURM.read_status(said(answer), ["19_2"])) == ["19_2"]


def test_a_job_is_not_mistaken_for_one_with_a_longer_id():
    answer = squeue("120", "RUNNING", "None", "main", "node1", "0:01", "n")
    assert SLURM.read_status(said(answer), ["12"]) == {}


@pytest.mark.parametrize(
    ("state", "code", "expected"),
    [
        ("COMPLETED", "0:0", (JobState.DONE, 0, "")),
        ("FAILED", "3:0", (JobState.FAILED, 3, "")),
        ("FAILED", "0:9", (JobState.FAILED, 137, "")),
        ("TIMEOUT", "0:0", (JobState.FAILED, None, "ran out of its time limit (--time)")),
        ("OUT_OF_MEMORY", "0:125", (JobState.FAILED, 253, "used more memory than requested (--mem)")),
        ("NODE_FAIL", "0:0", (JobState.FAILED, None, "one of its nodes failed")),
        ("PREEMPTED", "0:0", (JobState.FAILED, None, "preempted by a job with a higher priority")),
        ("CANCELLED by 1000", "0:15", (JobState.CANCELLED, 143, "cancelled by user 1000")),
        ("CANCELLED", "0:0", (JobState.CANCELLED, None, "")),
        ("RUNNING", "0:0", (JobState.RUNNING, None, "")),
    ],
)
def test_how_a_job_ended_stands_in_the_accounts(
    state: str, code: str, expected: tuple[JobState, int | None, str]
):
    answer = sacct(("12", state, code, "main", "node1", "61", "two\nlines"))
    status = SLURM.read_status(said(answer), ["12"])["12"]
    assert (status.state, status.code, status.reason) == expected
    assert (status.queue, status.nodes, status.elapsed) == ("main", "node1", 61)


def test_an_array_is_as_good_as_its_worst_task():
    answer = sacct(
        ("12_0", "COMPLETED", "0:0", "main", "node1", "61", "n"),
        ("12_1", "FAILED", "2:0", "main", "node1", "5", "n"),
        ("12_[2-3]", "CANCELLED by 0", "0:0", "main", "None assigned", "0", "n"),
    )
    found = SLURM.read_status(said(answer), ["12"])
    assert (found["12"].state, found["12"].code) == (JobState.FAILED, 2)
    assert found["12_3"] == JobStatus(
        "12_3", JobState.CANCELLED, "CANCELLED", "cancelled by user 0", None, "main", "", 0, "n"
    )


def test_the_controller_remembers_for_some_minutes():  # *
    head = "JobId=24"
    done = scontrol(head, "JobState=FAILED Reason=NonZeroExitCode", "ExitCode=3:0 RunTime=00:01:02")
    assert SLURM.read_status(said(done), ["24"]) == {
        "24": JobStatus("24", JobState.FAILED, "FAILED", "", 3, "main", "node1", 62, "f.sh")
    }


def test_a_job_that_never_started_did_not_run_since_1970():  # *
    answer = scontrol(
        "JobId=2", "JobState=CANCELLED Reason=DependencyNeverSatisfied", "ExitCode=0:0 RunTime=20778-07:00:59"
    ).replace("NodeList=node1", "NodeList=")
    status = SLURM.read_status(said(answer), ["2"])["2"]
    assert (status.state, status.code, status.elapsed) == (JobState.CANCELLED, None, None)
    assert status.reason.startswith("never started: a job of --after did not end well")


def test_a_reason_to_wait_says_nothing_of_a_job_that_has_ended():  # *
    assert reason_of("CANCELLED", "PartitionConfig") == ""
    assert reason_of("FAILED", "NonZeroExitCode") == ""
    assert "killed" in reason_of("FAILED", "JobLaunchFailure")


def test_the_controller_tells_a_jobs_name_from_its_state():  # *
    killed = scontrol(
        "JobId=25", "JobState=COMPLETED Reason=None", "ExitCode=0:0 RunTime=00:00:02", name=ODD_NAME
    )
    status = SLURM.read_status(said(killed), ["25"])["25"]
    assert (status.state, status.name) == (JobState.DONE, ODD_NAME)


def test_the_controller_prints_a_line_for_each_task():  # *
    task = "ExitCode=0:0 RunTime=00:00:01"
    both = scontrol("JobId=26 ArrayJobId=26 ArrayTaskId=1", "JobState=COMPLETED Reason=None", task)
    both += scontrol("JobId=27 ArrayJobId=26 ArrayTaskId=0", "JobState=COMPLETED Reason=None", task)
    found = SLURM.read_status(said(both), ["26"])
    assert set(found) == {"26", "26_0", "26_1"}
    assert (found["26"].state, found["26"].code) == (JobState.DONE, 0)


@pytest.mark.parametrize(
    "err",
    [
        "slurm_load_jobs error: Invalid job id specified\n",  # *
        "Slurm accounting storage is disabled\n",  # *
        "sacct: error: slurm_persist_conn_open_without_init: failed to open persistent connection to host:localhost:"
        "6819: Connection refused\nsacct: error: Problem talking to the database: Connection refused\n",
    ],
)
def test_who_does_not_know_a_job_leaves_the_question_to_the_next(err: str):
    assert SLURM.read_status(said(err=err, code=1), ["12"]) == {}


def test_a_machine_without_sacct_is_no_error():
    assert SLURM.read_status(said(err="sacct: No such file or directory", code=127), ["12"]) == {}


@pytest.mark.parametrize(
    ("err", "code", "expected"),
    [
        # *
        (
            "slurm_load_jobs error: Unable to contact slurm controller (connect failure)\n",
            1,
            ("scheduler-unreachable", 1),
        ),
        ("squeue: No such file or directory", 127, ("scheduler-missing", 2)),
        ("squeue: no answer within 60 s", 124, ("scheduler-unreachable", 1)),
    ],
)
def test_silence_is_not_taken_for_the_end_of_a_job(err: str, code: int, expected: tuple[str, int]):
    with pytest.raises(RankupError) as error:
        SLURM.read_status(said(err=err, code=code), ["12"])
    assert (error.value.code, error.value.exit_code) == expected


def test_every_state_means_something_and_a_new_one_means_that_the_job_lives():
    assert STATE_OF["COMPLETED"] is JobState.DONE
    assert {state for word, state in STATE_OF.items() if word.endswith("_FAIL")} == {JobState.FAILED}
    assert state_of("CANCELLED+") is JobState.CANCELLED  # cut to a column's width
    assert state_of("TELEPORTING") is JobState.RUNNING


@pytest.mark.parametrize(
    ("reason", "words"),
    [
        ("Priority", "higher priority"),
        ("Resources", "next in line"),
        ("BeginTime", "two minutes"),
        ("QOSMaxGRESPerUser", "as many GPUs"),
        ("AssocGrpCPUMinutesLimit", "budget"),
        ("AssocGrpGRESMinutes", "budget"),
        ("QOSGrpGRES", "your group"),
        ("QOSMaxWallDurationPerJobLimit", "--time"),
        ("PartitionTimeLimit", "--time"),
        ("ReqNodeNotAvail, UnavailableNodes:node[1-9]", "maintenance"),
        ("JobHeldAdmin", "administrator"),
        ("JobHeldUser", "scontrol release"),
        ("(Dependency)", "--after"),
        ("AccountNotAllowed", "--account"),
        ("QOSMaxJobsPerUserLimit", "at a time"),
        ("SomethingNew", "SomethingNew"),
    ],
)
def test_reasons_are_said_in_words_that_help(reason: str, words: str):
    assert words in reason_of("PENDING", reason)
    assert reason.strip("()") in reason_of("PENDING", reason)  # to search for


_NAMES = st.text(st.characters(exclude_characters="\x1e\x1f", exclude_categories=["Cs"]), max_size=30)


@given(_NAMES, st.sampled_from(sorted(STATE_OF)))
def test_any_name_survives_squeue_and_the_job_after_it_too(name: str, state: str):
    answer = squeue("1", state, "None", "main", "node1", "0:01", name)
    answer += squeue("2", "RUNNING", "None", "main", "node1", "0:01", "other")
    found = SLURM.read_status(said(answer), ["1", "2"])
    assert (found["1"].name, found["1"].state, found["2"].name) == (name, STATE_OF[state], "other")


@given(st.text(string.printable, max_size=60))
def test_no_name_changes_what_sacct_says(name: str):
    answer = sacct(
        ("1", "FAILED", "3:0", "main", "node1", "1", name),
        ("2", "COMPLETED", "0:0", "main", "node1", "1", "other"),
    )
    found = SLURM.read_status(said(answer), ["1", "2"])
    assert (found["1"].code, found["2"].code) == (3, 0)


@given(
    st.one_of(
        st.text(),
        st.text().map(lambda text: "\x1e" + text),
        st.lists(st.text(), max_size=8).map(lambda fields: "\x1e" + "\x1f".join(fields)),
        st.lists(st.text(), max_size=8).map(lambda fields: "JobID\x1f\n1\x1f" + "\x1f".join(fields)),
        st.text().map(lambda text: "JobId=1 JobName=a UserId=b GroupId=c JobState=" + text),
    ),
    st.sampled_from([[], ["1"]]),
)
def test_nothing_that_is_printed_ends_in_a_traceback(out: str, ids: list[str]):
    assert set(SLURM.read_status(said(out), ids)) <= {"1"} or not ids
