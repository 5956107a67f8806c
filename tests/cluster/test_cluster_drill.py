"""``rankup drill`` on a real SLURM, as an ordinary user: the failures really occur, and the answers are true."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from lab import HEAD, Lab

from drilling import keep, losing_nodes

pytestmark = [pytest.mark.cluster, pytest.mark.slow, pytest.mark.timeout(1800)]
SIZES = "--time 10m --stop-before 60s --nodes 2 --nproc-per-node 1 --max-restarts 2"
RENDER = f"rankup render --site slurm {SIZES} steps.py"


def drill(lab: Lab, folder: Path, *words: str) -> dict[str, Any]:
    """The answer, with its rows by failure."""
    command = ["env", "-C", folder, sys.executable, "-m", "rankup", "drill", "--yes", "--json", *words]
    done = lab.run(HEAD, command, alice=True, timeout=1700)
    assert done.out, done.err
    answer = json.loads(done.out)
    assert "failures" in answer, answer
    return {**answer, "rows": {row["failure"]: row for row in answer["failures"]}, "code": done.code}


def test_a_preempted_job_goes_on_and_one_whose_rank_is_killed_does_not(cluster: Lab):
    folder = cluster.project("cyclone", "cyclone.sh", "train.py")
    answer = drill(cluster, folder, "--failures", "preempted,rank-killed", "cyclone.sh")
    rows = answer["rows"]
    assert answer["code"] == 0, answer
    assert "Restarts 1" in rows["preempted"]["records"][0]
    assert (rows["preempted"]["went_on"], rows["preempted"]["result"]) == ("by itself", "the same")
    killed = rows["rank-killed"]
    assert "JobState FAILED" in killed["records"][0] and "JobState COMPLETED" in killed["records"][1]
    # Two steps after a save, and submitted again by the same command.
    assert (killed["went_on"], killed["steps_lost"]) == ("when it was submitted again", 2)
    assert [change["code"] for change in killed["changes"]] == ["not-started-again"]
    # The job's own folder has nothing but what was there, and the drill's.
    assert sorted(path.name for path in folder.iterdir()) == ["cyclone.sh", "runs", "train.py"]
    # No process of the drill is left.
    for node in cluster.nodes:
        assert "train.py" not in cluster.run(node, ["ps", "-eo", "args"]).out


# What the scheduler itself says, by failure: of the first job.
RECORDS = {
    "time-limit-unannounced": "JobState TIMEOUT",
    "preempted": "Restarts 1",
    "cancelled": "JobState CANCELLED",
    "rank-killed": "",
    "node-lost": "Restarts 1",
}


@pytest.mark.campaign
def test_a_rendered_job_survives_every_failure_with_the_same_weights(own_cluster: Lab):
    folder = own_cluster.project("ours", "steps.py")
    script = own_cluster.run(HEAD, ["env", "-C", folder, *RENDER.split()], alice=True)
    (folder / "job.sh").write_text(script.out)
    again = "RANKUP_RUN=$(echo $PWD/runs/steps/*) sbatch job.sh"
    with losing_nodes(own_cluster.alice, own_cluster.cut_power, own_cluster.revive) as operator:
        answer = drill(own_cluster, folder, *operator, "--again", again, "job.sh")
    keep(answer, "slurm-ours")
    for name, row in answer["rows"].items():
        assert row["not_tried"] == "", row
        assert row["survived"] and row["result"] == "the same", row
        assert RECORDS.get(name, "") in row["records"][0], row
    assert {name for name, row in answer["rows"].items() if row["submitted_again"]} <= {
        "time-limit-unannounced", "cancelled", "terminated", "disk-full", "read-only", "rank-killed", "second-job",
    }  # fmt: skip
    assert answer["code"] == 0


@pytest.mark.campaign
@pytest.mark.parametrize("name", ["cyclone", "olivia"])
def test_scripts_of_others_meet_every_failure(own_cluster: Lab, name: str):
    folder = own_cluster.project(name, f"{name}.sh", "train.py" if name == "cyclone" else "plain.py")
    with losing_nodes(own_cluster.alice, own_cluster.cut_power, own_cluster.revive) as operator:
        answer = drill(own_cluster, folder, *operator, f"{name}.sh")
    keep(answer, f"slurm-{name}")
    # Olivia's job forbids that it is requeued.
    expected = RECORDS | ({"node-lost": "JobState NODE_FAIL"} if name == "olivia" else {})
    for failure, row in answer["rows"].items():
        if not row["not_tried"]:
            assert expected.get(failure, "") in row["records"][0], row
    assert answer["survived"] == {"cyclone": 10, "olivia": 7}[name], answer
