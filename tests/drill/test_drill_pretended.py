"""``rankup drill --here`` where no scheduler is installed: whole drills on a pretended cluster."""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest

from rankup.cli.app import main
from rankup.drill.lab.slurm import SlurmLab
from rankup.rehearse import sandbox

JOBS = Path(__file__).parent / "jobs"
pytestmark = pytest.mark.skipif(bool(sandbox.available()), reason=f"no sandbox: {sandbox.available()}")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "job").mkdir()
    return tmp_path / "job"


def drill(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], failures: str
) -> dict[str, Any]:
    monkeypatch.setattr(SlurmLab, "path", "")  # none is installed
    monkeypatch.setattr("rankup.drill.drill._GONE_S", 0.5)
    shutil.copy(JOBS / "train.py", folder)
    script = folder / "job.sh"
    script.write_text(f"#!/bin/bash\n#SBATCH --nodes=1\nsrun {sys.executable} train.py 12\necho over\n")
    with pytest.raises(SystemExit) as ended:
        main(["drill", "--here", "--json", "--failures", failures, str(script)])
    answer = json.loads(capfd.readouterr().out)
    assert ended.value.code == 0, answer
    assert answer["pretended"].startswith("no SLURM, but a pretended cluster: not installed: ")
    assert sorted(path.name for path in folder.iterdir()) == ["job.sh", "runs", "train.py"]
    return {**answer, "rows": {row["failure"]: row for row in answer["failures"]}}


@pytest.mark.slow
def test_a_drill_on_a_pretended_cluster_says_so_and_names_what_it_cannot_try(folder, monkeypatch, capfd):
    answer = drill(folder, monkeypatch, capfd, "node-lost")
    assert (answer["steps"], answer["tried"]) == (12, 0)
    assert answer["rows"]["node-lost"]["not_tried"].startswith("the nodes are pretended")


@pytest.mark.campaign
@pytest.mark.timeout(900)
def test_failures_really_meet_a_training_on_a_pretended_cluster(folder, monkeypatch, capfd):
    rows = drill(folder, monkeypatch, capfd, "preempted,rank-killed")["rows"]
    preempted, killed = rows["preempted"], rows["rank-killed"]
    assert (preempted["survived"], preempted["went_on"], preempted["result"]) == (
        True,
        "by itself",
        "the same",
    )
    assert "JobState COMPLETED, Restarts 1" in preempted["records"][0]
    assert (killed["went_on"], killed["steps_lost"]) == ("when it was submitted again", 2)
    assert "JobState COMPLETED, Restarts 0, ExitCode 0:0" in killed["records"][0]
    assert [change["code"] for change in killed["changes"]] == ["hides-its-end", "not-started-again"]
