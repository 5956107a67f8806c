"""``rankup drill --here``: a SLURM comes up for the drill, its nodes are really lost, and nothing of it is left."""

from __future__ import annotations

import json
import shutil
import signal
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from lab import ALICE, HEAD, Lab, why_not

from drilling import Here
from lab_user import JOBS

pytestmark = [pytest.mark.cluster, pytest.mark.slow, pytest.mark.timeout(900)]


@pytest.fixture
def folder() -> Iterator[Path]:
    """A job's folder, not below /tmp."""
    if reason := why_not():
        pytest.skip(f"no SLURM lab: {reason}")
    with tempfile.TemporaryDirectory(prefix="rankup-here-", dir="/var/tmp") as name:
        for file in ("cyclone.sh", "train.py"):
            shutil.copy(JOBS / file, name)
        yield Path(name)


def test_a_node_is_really_lost_and_nothing_of_the_lab_is_left(folder: Path):
    here = Here(folder, "cyclone.sh", "slurmd")
    out, err = here.drill.communicate()
    here.nothing_is_left()
    assert here.drill.returncode == 0, err
    (row,) = json.loads(out)["failures"]
    # SLURM itself has noticed the node, and requeued the job.
    assert "JobState COMPLETED" in row["records"][0] and "Restarts 1" in row["records"][0], row
    assert [start["attempt"] for start in row["starts"]] == [1, 2]
    assert (row["survived"], row["went_on"], row["result"]) == (True, "by itself", "the same"), row
    assert not [*folder.glob("runs/*/*/node-lost/attempts/1/node")]  # which the failure from inside leaves
    assert sorted(path.name for path in folder.iterdir()) == ["cyclone.sh", "runs", "train.py"]


@pytest.mark.campaign
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_nothing_is_left_of_a_drill_that_is_killed_while_its_job_trains(folder: Path, number: signal.Signals):
    here = Here(folder, "cyclone.sh", "slurmd")
    here.trains(folder)
    here.drill.send_signal(number)
    here.drill.communicate(timeout=240)
    here.nothing_is_left()


@pytest.mark.campaign
def test_the_jobs_are_those_of_the_user_for_whom_root_calls(cluster: Lab):
    """In the lab of the tests, whose user can read this Python: a lab on its head."""
    folder = cluster.project("here", "cyclone.sh", "train.py")
    words = ["rankup", "drill", "--here", "--json", "--failures", "read-only,node-lost", "cyclone.sh"]
    command = ["env", "-C", folder, "SUDO_USER=alice", sys.executable, "-m", *words]
    done = cluster.run(HEAD, command, timeout=800)
    assert done.out, done.err
    rows = {row["failure"]: row for row in json.loads(done.out)["failures"]}
    assert rows["read-only"]["not_tried"] == "" and "Restarts 1" in rows["node-lost"]["records"][0], rows
    assert {path.lstat().st_uid for path in folder.rglob("*")} == {ALICE}
    assert (folder / "runs").stat().st_uid == ALICE
