"""The job of a run whose submitter was killed."""

from __future__ import annotations

import os

import pytest

from rankup.batch.recover import recover
from rankup.core.rundir import RunDir
from rankup.errors import RankupError


@pytest.fixture
def run(tmp_path):
    made = RunDir.create(tmp_path / "runs", "trials")
    (made.path / "job.sh").write_text("")
    return made


@pytest.fixture
def squeue(tmp_path, monkeypatch):
    """What squeue prints: ids and scripts, as the format asks for them."""

    def write(*jobs, code=0):
        text = "".join(f"\\x1e{job}\\x1f{script}\\n" for job, script in jobs)
        path = tmp_path / "bin" / "squeue"
        path.parent.mkdir(exist_ok=True)
        path.write_text(f"#!/bin/bash\nprintf '{text}'\nexit {code}\n")
        path.chmod(0o755)
        monkeypatch.setenv("PATH", f"{path.parent}:/usr/bin:/bin")

    return write


def test_the_id_that_was_noted(run):
    (run.path / "jobs").write_text("12\n")
    assert recover(run, "slurm", os.environ) == "12"


def test_a_job_in_the_queue_is_found_by_its_script(run, squeue):
    squeue(("7", "/elsewhere/job.sh"), ("8", f"{run.path}-2/job.sh"), ("9", f"{run.path}/job.sh"))
    assert recover(run, "slurm", os.environ) == "9"
    assert (run.path / "jobs").read_text() == "9\n" and not (run.path / "CANCELLED").exists()


def test_a_job_that_has_ended_meanwhile_is_found_by_its_attempt(run, squeue):
    squeue()
    (run.path / "attempts").write_text("1 9 1795358953 node1\n")
    assert recover(run, "slurm", os.environ) == "9"
    assert not (run.path / "CANCELLED").exists()


def test_a_job_that_nobody_sees_ends_at_once_if_it_comes(run, squeue):
    squeue(("7", "/elsewhere/job.sh"))
    assert recover(run, "slurm", os.environ) == ""
    assert (run.path / "CANCELLED").exists() and not (run.path / "jobs").exists()


def test_a_submit_that_did_not_reach_the_scheduler(run):
    (run.path / "job.sh").unlink()
    assert recover(run, "slurm", os.environ) == ""
    assert recover(RunDir(run.path / "removed"), "slurm", os.environ) == ""


def test_a_scheduler_that_does_not_answer_is_no_reason_to_submit_again(run, squeue):
    squeue(code=1)
    with pytest.raises(RankupError) as caught:
        recover(run, "slurm", os.environ)
    assert caught.value.code == "submit-unclear" and caught.value.exit_code == 1
