"""``rankup drill --here`` of a PBS script: a PBS comes up for the drill, a node is really lost, and nothing is left."""

from __future__ import annotations

import json
import shutil
import signal
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from pbs_lab import ALICE, HEAD, PbsLab, why_not

from drilling import Here
from lab_user import JOBS

pytestmark = [pytest.mark.pbs, pytest.mark.slow, pytest.mark.timeout(1500)]


@pytest.fixture
def folder(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A job's folder, not below /tmp."""
    if reason := why_not():
        pytest.skip(f"no PBS lab: {reason}")
    monkeypatch.setenv("PYTHON", sys.executable)  # the script hands it on
    with tempfile.TemporaryDirectory(prefix="rankup-here-", dir="/var/tmp") as name:
        for file in ("eap.sh", "train.py"):
            shutil.copy(JOBS / file, name)
        yield Path(name)


def test_a_node_of_its_pbs_is_really_lost_and_nothing_of_the_lab_is_left(folder: Path):
    # PBS ends no job that has lost another node than its first: its ranks wait until the time limit.
    here = Here(folder, "eap.sh", "pbs_mom", "--limit", "3m")
    out, err = here.drill.communicate()
    here.nothing_is_left()
    assert here.drill.returncode == 0, err
    answer = json.loads(out)
    (row,) = answer["failures"]
    assert answer["pretended"] == ""
    assert (row["not_tried"], row["survived"], row["result"]) == ("", True, "the same"), row
    assert "Exit_status -29" in row["records"][0], row
    assert len(row["starts"]) == 2 and row["steps_lost"] > 0, row
    assert not [*folder.glob("runs/*/*/node-lost/attempts/1/node")]  # which the failure from inside leaves
    assert sorted(path.name for path in folder.iterdir()) == ["eap.sh", "runs", "train.py"]


@pytest.mark.campaign
def test_nothing_is_left_of_a_drill_on_pbs_that_is_interrupted_while_its_job_trains(folder: Path):
    here = Here(folder, "eap.sh", "pbs_mom")
    here.trains(folder)
    here.drill.send_signal(signal.SIGINT)
    here.drill.communicate(timeout=60)
    here.nothing_is_left()


@pytest.mark.campaign
def test_the_jobs_are_those_of_the_user_for_whom_root_calls_who_may_rerun_them(pbs: PbsLab):
    """In the lab of the tests, whose user can read this Python: a lab on its head."""
    folder = pbs.project("here", "eap.sh", "train.py")
    words = ["rankup", "drill", "--here", "--as", "alice", "--json", "--failures", "preempted", "eap.sh"]
    command = ["env", "-C", folder, f"PYTHON={sys.executable}", sys.executable, "-m", *words]
    done = pbs.run_as(HEAD, command, None, 900, alice=False)
    assert done.out, done.err
    (row,) = json.loads(done.out)["failures"]
    assert (row["not_tried"], row["survived"]) == ("", True) and "run_count 2" in row["records"][0], row
    assert {path.lstat().st_uid for path in folder.rglob("*")} == {ALICE}  # a link may lead nowhere
