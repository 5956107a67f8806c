"""``rankup drill`` on a real PBS: the failures really occur, and the answers are true."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from pbs_jobs import RANKUP
from pbs_lab import HEAD, PbsLab

from drilling import keep, losing_nodes

pytestmark = [pytest.mark.pbs, pytest.mark.slow, pytest.mark.timeout(2400)]
SIZES = ("--nodes", "2", "--nproc-per-node", "1", "--time", "4m", "--stop-before", "60s")


def drill(lab: PbsLab, folder: Path, *words: str) -> dict[str, Any]:
    command = ["env", "-C", folder, f"PYTHON={sys.executable}", *RANKUP, "drill", "--yes", "--json", *words]
    done = lab.ask(HEAD, command, timeout=2300)
    assert done.out, done.err
    answer = json.loads(done.out)
    assert "failures" in answer, answer
    return {**answer, "rows": {row["failure"]: row for row in answer["failures"]}, "code": done.code}


@pytest.mark.campaign
def test_a_chain_of_jobs_goes_on_and_cannot_be_cancelled(pbs: PbsLab):
    folder = pbs.project("eap", "eap.sh", "train.py")
    rows = drill(pbs, folder, "--failures", "preempted,cancelled,rank-killed", "eap.sh")["rows"]
    assert "Unauthorized" in rows["preempted"]["not_tried"]  # an ordinary user may not
    killed = rows["rank-killed"]
    assert (killed["survived"], killed["went_on"], killed["steps_lost"]) == (True, "by itself", 2)
    assert [change["code"] for change in rows["cancelled"]["changes"]] == ["cannot-be-cancelled"]
    assert "terminated by alice" in rows["cancelled"]["records"][0]
    assert sorted(path.name for path in folder.iterdir()) == ["eap.sh", "runs", "train.py"]


# What PBS itself says, by failure: of the first job.
RECORDS = {
    "time-limit-unannounced": "Exit_status -29",
    "preempted": "run_count 2",
    "cancelled": "terminated by alice",
}


@pytest.mark.campaign
@pytest.mark.parametrize("name", ["ours", "eap"])
def test_every_failure_meets_a_job(own_pbs: PbsLab, name: str):
    own_pbs.manage("set server operators += alice@*\n")
    folder = own_pbs.project(name, *(("steps.py",) if name == "ours" else ("eap.sh", "train.py")))
    again: tuple[str, ...] = ()
    script = "eap.sh"
    if name == "ours":
        render = [*RANKUP, "render", "--site", "pbs", "--python", sys.executable, *SIZES, "steps.py"]
        script = "job.sh"
        (folder / script).write_text(own_pbs.ask(HEAD, ["env", "-C", folder, *render]).out)
        again = ("--again", "qsub -v RANKUP_RUN=$(echo $PWD/runs/steps/*) job.sh")
    with losing_nodes(own_pbs.alice, own_pbs.cut_power, own_pbs.revive) as operator:
        answer = drill(own_pbs, folder, *operator, "--limit", "4m", "--short", "4m", *again, script)
    keep(answer, f"pbs-{name}")
    for failure, row in answer["rows"].items():
        assert row["not_tried"] == "", row
        assert RECORDS.get(failure, "") in row["records"][0], row
        assert name != "ours" or (row["survived"] and row["result"] == "the same"), row
