"""Jobs on a real PBS: successors and what waits for them, time limits, arrays, failures; their samplers, and doctor."""

from __future__ import annotations

import json
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from pbs_jobs import ended, log, rankup, status, submit
from pbs_lab import HEAD, PbsLab

from rankup.core.records import read_records

pytestmark = [pytest.mark.pbs, pytest.mark.slow, pytest.mark.timeout(600)]

# Saves when it is asked to stop, and ends by itself in the attempt that its first argument names.
STEP = """
import os, pathlib, signal, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)  # the job's script asks as well, by STOP
run = pathlib.Path(os.environ["RANKUP_RUN_DIR"])
attempt = len((run / "attempts").read_text().splitlines())
print("attempt", attempt, "task", os.environ.get("RANKUP_TASK"), "begun", flush=True)
while attempt < int(sys.argv[1]):
    if (run / "STOP").exists():
        (run / "outcome").write_text("requeue\\n")
        sys.exit()
    time.sleep(0.2)
with open("order.txt", "a") as file:
    print(run.parent.name, "ends in attempt", attempt, file=file)
sys.exit(int(sys.argv[2]))
"""


def ask_to_stop(answer: dict[str, Any]) -> None:
    """As the job's script does shortly before its time limit."""
    (Path(answer["run"]) / "STOP").write_text(f"time-limit {int(time.time()) + 60}\n")


@pytest.fixture(scope="module", autouse=True)
def short(pbs: PbsLab) -> dict[str, Any]:
    """A job whose time limit is that of its queue, a minute: it runs beside those of the first test."""
    pbs.write("step.py", STEP)
    return submit(pbs, "--name", "short", "--queue", "short", "step.py", "2", "0", time=())


def test_what_waits_for_a_job_waits_for_its_successor(pbs: PbsLab):
    good = submit(pbs, "--name", "good", "step.py", "2", "0")
    bad = submit(pbs, "--name", "bad", "step.py", "2", "4")
    after_good = submit(pbs, "--name", "after-good", "--after", good["job"], "step.py", "1", "0")
    after_bad = submit(pbs, "--name", "after-bad", "--after", bad["job"], "step.py", "1", "0")
    for answer in (good, bad):
        pbs.until(lambda: "begun" in log(answer))  # noqa: B023
        ask_to_stop(answer)
    pbs.until(lambda: "requeue 1 of 10" in log(good))
    too_late = submit(pbs, "--name", "too-late", "--after", good["job"], "step.py", "1", "0")
    done = ended(pbs, after_good)
    assert done.code == 0, done.out + done.err + log(good)
    # The first job of the run ended with 0, which is PBS's alone; the run itself went on.
    assert pbs.qstat(good["job"])["Exit_status"] == 0
    order = (pbs.alice / "order.txt").read_text().splitlines()
    assert order.index("good ends in attempt 2") < order.index("after-good ends in attempt 1")
    # One that was submitted when the job had gone on already waits for the successor, too.
    assert ended(pbs, too_late).code == 0, log(too_late)
    assert (status(pbs, good)["state"], status(pbs, good)["attempts"]) == ("done", 2)
    assert ended(pbs, bad).code == 4, log(bad)
    pbs.until(lambda: pbs.qstat(after_bad["job"]).get("job_state") == "F")
    assert log(after_bad) == "" and status(pbs, after_bad)["state"] == "cancelled"


def test_what_waits_for_a_job_that_is_just_ending_does_not_wait_for_ever(pbs: PbsLab):
    """PBS itself forgets it: a job in state E has released what waits for it, and takes more all the same."""
    first = submit(pbs, "--name", "first", "step.py", "1", "0")
    names = {"after-end": "--after-any", "after-success": "--after"}
    with ThreadPoolExecutor() as pool:
        with pbs.jobs_do_not_end():
            pbs.until(lambda: pbs.qstat(first["job"]).get("job_state") == "E")
            asked = [
                pool.submit(submit, pbs, "--name", name, option, first["job"], "step.py", "1", "0")
                for name, option in names.items()
            ]
            pbs.until(lambda: all(pbs.ask(HEAD, ["qselect", "-s", "H", "-N", name]).out for name in names))
        for answer in asked:
            done = ended(pbs, answer.result())
            assert done.code == 0, done.out + done.err


def test_a_job_without_a_time_limit_of_its_own_is_continued_after_its_queues(
    pbs: PbsLab, short: dict[str, Any]
):
    answer = short
    assert pbs.qstat(answer["job"])["Resource_List"]["walltime"] == "00:01:00"
    assert ended(pbs, answer).code == 0, log(answer)
    assert "asked the ranks to save and stop (time-limit)" in log(answer)
    assert status(pbs, answer)["attempts"] == 2


def test_a_job_that_pbs_ends_at_its_time_limit_is_not_called_cancelled(pbs: PbsLab):
    answer = submit(pbs, "--name", "cut", "step.py", "2", "0")
    pbs.until(lambda: "begun" in log(answer))
    # Behind the script's back, which would otherwise have ended in time.
    done = pbs.ask(HEAD, ["qalter", "-l", "walltime=00:00:08", answer["job"]])
    assert done.code == 0, done.err
    ended(pbs, answer)
    found = status(pbs, answer)
    assert pbs.qstat(answer["job"])["Exit_status"] == -29
    assert found["state"] == "failed" and "time limit" in found["reason"], found


def test_tasks_of_an_array_are_cancelled_one_by_one(pbs: PbsLab):
    answer = submit(pbs, "--name", "array", "--array", "1-3", "step.py", "9", "0")
    pbs.until(lambda: all("begun" in log(answer, f"job-{i}.log") for i in (1, 2, 3)))
    number = answer["job"].partition("[")[0]
    for task in (f"{number}[2]", f"{number}_3"):
        done = rankup(pbs, "cancel", task)
        assert done.code == 0, done.out + done.err
    for i in (2, 3):
        pbs.until(lambda: pbs.qstat(f"{number}[{i}]").get("job_state") == "X")  # noqa: B023
    assert pbs.qstat(f"{number}[1]")["job_state"] == "R"
    tasks = json.loads(rankup(pbs, "status", "--json", answer["run"]).out)[0]["tasks"]
    assert {i: tasks[i]["state"] for i in tasks} == {"1": "running", "2": "cancelled", "3": "cancelled"}
    assert rankup(pbs, "cancel", answer["run"]).code == 0
    pbs.until(lambda: pbs.qstat(f"{number}[]").get("job_state") == "F")


# ---------------------------------------------------------------- doctor and top

WAITS = "import time\nprint('rank waits', flush=True)\ntime.sleep(600)\n"


def nodes_of(pbs: PbsLab, job: str) -> list[str]:
    return sorted({part.partition("/")[0] for part in pbs.qstat(job)["exec_host"].split("+")})


def samplers(pbs: PbsLab, run: str) -> list[str]:
    """The command lines of the samplers of ``run`` that live, on all nodes."""
    lines = [line for node in pbs.nodes for line in pbs.ask(node, ["ps", "-eo", "args"]).out.splitlines()]
    return [line for line in lines if run in line and ("rankup.monitor" in line or "sampler.sh" in line)]


@pytest.mark.parametrize("how", ["qdel", pytest.param("SIGKILL", marks=pytest.mark.campaign)])
def test_each_node_of_a_job_is_sampled_and_no_sampler_is_left(pbs: PbsLab, how: str):
    pbs.write("waits.py", WAITS)
    answer = submit(
        pbs, "--name", "sampled", "--nodes", "2", "--nproc-per-node", "2", "--max-requeues", "0", "waits.py"
    )
    folder = Path(answer["run"]) / "records"
    pbs.until(
        lambda: len([1 for path in folder.glob("utilization-*") if len(read_records(path)) >= 2]) == 2, 150
    )
    done = rankup(pbs, "top", "--once", "--json", answer["run"])
    assert done.code == 0, done.out + done.err
    seen = json.loads(done.out)
    assert [node["host"] for node in seen["nodes"]] == nodes_of(pbs, answer["job"]) and seen[
        "state"
    ] == "running"
    assert len(samplers(pbs, answer["run"])) == 2
    command = ["qdel", answer["job"]] if how == "qdel" else ["qsig", "-s", "SIGKILL", answer["job"]]
    assert pbs.ask(HEAD, command).code == 0
    pbs.until(lambda: not samplers(pbs, answer["run"]), 120)


def test_doctor_in_a_job_examines_its_nodes(pbs: PbsLab):
    """The agents are started by PBS itself; the facts come back on their output."""
    command = f"{sys.executable} -m rankup doctor --quick --json --timeout 60"
    text = f"#!/bin/bash\ncd {pbs.alice}\n{command} >doctor.json 2>doctor.err\n"
    done = pbs.ask(HEAD, ["qsub", "-l", "select=2:ncpus=2", "-l", "place=scatter"], text=text)
    assert done.code == 0, done.err
    job = done.out.strip()
    pbs.until(lambda: pbs.qstat(job)["job_state"] == "F", 150)
    said = (pbs.alice / "doctor.json").read_text()
    assert said, (pbs.alice / "doctor.err").read_text()
    found = json.loads(said)
    assert sorted(found["hosts"]) == nodes_of(pbs, job)
    assert found["verdict"] != "broken", found["findings"]
    assert found["here"]["scheduler"] == "qsub"  # whatever else is installed
    assert {str(node) for node in range(2)} == found["nodes"].keys()
