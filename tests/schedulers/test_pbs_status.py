"""qstat: what it is asked, and what its answers mean, as JSON, as text, and in Torque's words."""

from __future__ import annotations

import getpass
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scheduler_samples import said

from rankup.errors import RankupError
from rankup.schedulers.base import JobState, JobStatus, scheduler_named

PBS, TORQUE = scheduler_named("pbs"), scheduler_named("torque")
STIME = "Sat Nov 21 02:05:03 2026"


def answer(**jobs: dict[str, Any]) -> str:
    """``qstat -f -F json`` of OpenPBS 23.06; without jobs the key is missing. ``job12`` is ``12.head``."""
    text: dict[str, Any] = {"timestamp": 1795226706, "pbs_version": "23.06.06", "pbs_server": "head"}
    if jobs:
        text["Jobs"] = {
            f"{name[3:]}.head": {"Job_Name": "demo", "queue": "workq", **jobs[name]} for name in jobs
        }
    return json.dumps(text)


def status(**values: Any) -> JobStatus:
    return PBS.read_status(said(answer(job12=values)), ["12.head"])["12.head"]


def test_json_first_then_text_then_without_history():
    assert PBS.status_commands(["12.head"]) == [
        ["qstat", "-x", "-f", "-F", "json", "12.head"],
        ["qstat", "-x", "-f", "12.head"],
        ["qstat", "-f", "12.head"],
    ]


def test_torque_is_asked_for_text():
    assert TORQUE.status_commands(["12.head"]) == [["qstat", "-f", "12.head"]]
    assert TORQUE.status_commands(["53[].head"]) == [["qstat", "-f", "-t", "53[].head"]]


def test_json_is_asked_about_one_job_or_about_all():
    # Of several ids it would print the first alone.
    few, many = ([f"{i}.head" for i in range(n)] for n in (3, 30))
    assert [command[5:] for command in PBS.status_commands(few)[:3]] == [["0.head"], ["1.head"], ["2.head"]]
    assert PBS.status_commands(many)[0] == ["qstat", "-x", "-f", "-F", "json"]


def test_tasks_of_arrays_are_asked_for():
    assert all("-t" in command for command in PBS.status_commands(["53[].head"]))
    assert not any("-t" in command for command in PBS.status_commands(["53.head"]))


def test_without_ids_the_users_own_jobs():
    assert PBS.status_commands([])[0] == ["qstat", "-f", "-F", "json"]
    mine, other = f"{getpass.getuser()}@head", "somebody-else@head"
    out = answer(job1={"Job_Owner": mine, "job_state": "R"}, job2={"Job_Owner": other, "job_state": "R"})
    assert list(PBS.read_status(said(out), [])) == ["1.head"]


def test_a_running_job():
    exec_host = "node1/0*8+node1/1*8+node2/0*8"
    used = {"walltime": "25:01:01", "ncpus": 2}
    found = status(
        job_state="R",
        substate=42,
        exec_host=exec_host,
        stime=STIME,
        resources_used=used,
        comment="Job run at…",
    )
    assert found == JobStatus(
        "12.head", JobState.RUNNING, "R", "", None, "workq", "node[1-2]", 25 * 3600 + 61, "demo"
    )


@pytest.mark.parametrize(
    ("values", "words"),
    [
        (
            {
                "job_state": "Q",
                "substate": 10,
                "comment": "Not Running: Insufficient amount of resource: ncpus ",
            },
            "waits: Insufficient amount of resource: ncpus",
        ),
        (
            {
                "job_state": "Q",
                "comment": "Can Never Run: Insufficient amount of resource: ngpus (R: 9 A: 4 T: 4)",
            },
            "will wait for ever, since the cluster has not what it asks for: Insufficient amount of resource: ngpus",
        ),
        ({"job_state": "H", "substate": 22, "Hold_Types": "s"}, "waits for the jobs of --after"),
        ({"job_state": "H", "substate": 20, "Hold_Types": "u"}, "held by you: `qrls` lets it go"),
        (
            {"job_state": "H", "Hold_Types": "s", "comment": "job held, too many failed attempts to run"},
            "too many failed attempts to run",
        ),
        ({"job_state": "W", "substate": 30}, "waits for its start time"),
        ({"job_state": "M"}, "moved to another PBS server"),
        ({"job_state": "Q", "substate": 10}, ""),
    ],
)
def test_a_waiting_job_says_why(values: dict[str, Any], words: str):
    found = status(**values)
    assert found.state is JobState.PENDING
    assert words in found.reason
    assert bool(found.reason) == bool(words)


@pytest.mark.parametrize(
    ("values", "state", "code", "words"),
    [
        ({"Exit_status": 0, "substate": 92, "stime": STIME}, JobState.DONE, 0, ""),
        ({"Exit_status": 3, "substate": 93, "stime": STIME}, JobState.FAILED, 3, ""),
        ({"Exit_status": 75, "substate": 93, "stime": STIME}, JobState.FAILED, 75, ""),
        ({"Exit_status": 265, "substate": 93, "stime": STIME}, JobState.FAILED, 137, "signal 9"),
        ({"Exit_status": 137, "substate": 93, "stime": STIME}, JobState.FAILED, 137, ""),
        ({"Exit_status": -29, "substate": 93, "stime": STIME}, JobState.FAILED, None, "time limit"),
        ({"Exit_status": -29, "substate": 91, "stime": STIME}, JobState.FAILED, None, "time limit"),
        ({"Exit_status": -27, "substate": 93, "stime": STIME}, JobState.FAILED, None, "--mem"),
        ({"Exit_status": -3, "substate": 93, "stime": STIME}, JobState.FAILED, None, "could not start it"),
        # 271 also where the script trapped TERM and ended with 0.
        ({"Exit_status": 271, "substate": 93, "stime": STIME}, JobState.FAILED, 143, "ended by TERM"),
        ({"Exit_status": 271, "substate": 91, "stime": STIME}, JobState.CANCELLED, 143, "cancelled"),
        # Deleted in the queue, or a dependency on a job that did not end well, or does not exist.
        ({"substate": 92}, JobState.CANCELLED, None, "never started"),
        ({"substate": 91}, JobState.CANCELLED, None, "never started"),
        ({"substate": 92, "stime": STIME}, JobState.FAILED, None, "does not say"),
    ],
)
def test_how_a_job_ended(values: dict[str, Any], state: JobState, code: int | None, words: str):
    found = status(job_state="F", **values)
    assert (found.state, found.code) == (state, code)
    assert words in found.reason
    assert bool(found.reason) == bool(words)
    assert found.out_of_time == ("time limit" in words)


def test_an_array_and_its_tasks():
    tasks = {
        f"job53[{i}]": values
        for i, values in enumerate([{"job_state": "X", "Exit_status": 0}, {"job_state": "R"}])
    }
    out = answer(**{"job53[]": {"job_state": "B", "substate": 70}, **tasks})
    found = PBS.read_status(said(out), ["53[].head"])
    assert {job: one.state for job, one in found.items()} == {
        "53[].head": JobState.RUNNING,
        "53[0].head": JobState.DONE,
        "53[1].head": JobState.RUNNING,
    }


@pytest.mark.parametrize("asked", ["12", "12.head", "12.head.example.org"])
def test_a_server_may_have_a_short_and_a_long_name(asked: str):
    assert PBS.read_status(said(answer(job12={"job_state": "R"})), [asked])[asked].id == asked


def test_other_jobs_are_left_out():
    out = answer(job12={"job_state": "R"}, job120={"job_state": "R"})
    assert list(PBS.read_status(said(out), ["12.head"])) == ["12.head"]
    assert PBS.read_status(said(out), ["12.other"]) == {}


TEXT = """\
Job Id: 12.head
    Job_Name = demo
    Job_Owner = alice@head
    resources_used.walltime = 00:01:02
    job_state = F
    queue = workq
    exec_host = node1/0*8+node2/0*8
    stime = Sat Nov 21 02:05:03 2026
    Variable_List = PBS_O_HOME=/home/alice,PBS_O_PATH=/usr/local/bin:/usr/bin:/bi
\tn,NOTE=job_state = Q
    comment = Job run at Sat Nov 21 at 02:05 on (node1:ncpus=8)+(node2:ncpus=8) an
\td finished
    Exit_status = 2

Job Id: 13.head
    Job_Name = other
    job_state = Q
    comment = Not Running: Not enough free nodes available
"""
TORQUE_SAYS = """\
Job Id: 2502414.mgt-mgmt
    Job_Name = BN_Job25
    Job_Owner = im18@dev1
    resources_used.walltime = 25:26:00
    job_state = C
    queue = batch
    server = mgt-mgmt
    exec_host = node7/0+node7/1
    start_time = Tue Nov 17 10:00:00 2026
    exit_status = {exit_status}

"""


def test_text_is_read_where_json_came_out_wrong():
    # Some versions write values into JSON that are none.
    broken = answer(job12={"job_state": "F"})[:-2] + ', "x": 0123}}'
    assert PBS.read_status(said(broken), ["12.head"]) == {}
    found = PBS.read_status(said(TEXT), ["12.head", "13.head"])
    assert found["12.head"] == JobStatus(
        "12.head", JobState.FAILED, "F", "", 2, "workq", "node[1-2]", 62, "demo"
    )
    assert found["13.head"].reason == "waits: Not enough free nodes available"


@pytest.mark.parametrize(
    ("exit_status", "state", "code", "words"),
    [
        ("0", JobState.DONE, 0, ""),
        ("1", JobState.FAILED, 1, ""),
        ("-11", JobState.FAILED, None, "time limit"),
        ("-10", JobState.FAILED, None, "--mem"),
        ("271", JobState.FAILED, 143, "ended by TERM"),
    ],
)
def test_torque_says_it_in_its_own_words(exit_status: str, state: JobState, code: int | None, words: str):
    out = TORQUE_SAYS.format(exit_status=exit_status)
    found = TORQUE.read_status(said(out), ["2502414.mgt-mgmt"])["2502414.mgt-mgmt"]
    assert (found.state, found.code, found.nodes, found.native) == (state, code, "node7", "C")
    assert words in found.reason


@pytest.mark.parametrize(
    ("out", "err", "code"),
    [
        ("", "qstat: Unknown Job Id 99.head\n", 153),
        ("", "qstat: 12.head Job has finished, use -x or -H to obtain historical job information\n", 35),
        ("", "qstat: invalid option -- 'F'\nusage: qstat [-f [-1]] [-W site_specific]\n", 2),  # Torque
        ("<Data><Job><Job_Id>12.head</Job_Id></Job></Data>", "", 0),  # Torque's -x
        (answer(), "", 0),
    ],
)
def test_who_does_not_know_a_job_leaves_the_question_to_the_next(out: str, err: str, code: int):
    assert PBS.read_status(said(out, err, code), ["12.head"]) == {}


@pytest.mark.parametrize(
    ("err", "code", "expected"),
    [
        (
            "Connection refused\nqstat: cannot connect to server head (errno=15010)\n",
            162,
            ("scheduler-unreachable", 1),
        ),
        ("qstat: No such file or directory", 127, ("scheduler-missing", 2)),
        ("qstat: no answer within 60 s", 124, ("scheduler-unreachable", 1)),
    ],
)
def test_silence_is_not_taken_for_the_end_of_a_job(err: str, code: int, expected: tuple[str, int]):
    with pytest.raises(RankupError) as error:
        PBS.read_status(said(err=err, code=code), ["12.head"])
    assert (error.value.code, error.value.exit_code) == expected


@given(st.text())
def test_any_name_survives_json(name: str):
    assert status(Job_Name=name, job_state="R").name == name


@given(st.text(st.characters(exclude_categories=["C", "Z"]), min_size=1), st.integers(1, 60))
def test_a_long_value_survives_its_line_breaks(value: str, width: int):
    pieces = "\n\t".join(value[i : i + width] for i in range(0, len(value), width))
    out = f"Job Id: 12.head\n    job_state = R\n    Job_Name = {pieces}\n    queue = workq\n"
    found = PBS.read_status(said(out), ["12.head"])["12.head"]
    assert (found.name, found.queue) == (value, "workq")


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text() | st.just("job_state"), inner),
    max_leaves=8,
)


@given(
    st.one_of(
        st.text(),
        st.text().map(lambda text: "{" + text),
        _JSON.map(json.dumps),
        _JSON.map(lambda jobs: json.dumps({"Jobs": {"12.head": jobs}})),
        st.lists(st.text()).map(
            lambda lines: "Job Id: 12.head\n" + "\n".join("    job_state = " + x for x in lines)
        ),
        st.dictionaries(
            st.sampled_from(["job_state", "Exit_status", "exec_host", "comment", "substate", "Hold_Types"]),
            st.text(),
        ).map(lambda values: json.dumps({"Jobs": {"12.head": values}})),
    ),
    st.sampled_from([[], ["12.head"]]),
)
def test_nothing_that_is_printed_ends_in_a_traceback(out: str, ids: list[str]):
    assert set(PBS.read_status(said(out), ids)) <= {"12.head"}
