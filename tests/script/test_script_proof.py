"""The proof at the beginning of a job: what starts it, and that only a difference ends the job."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from rankup.core.rundir import RunDir
from rankup.script.render import render
from rankup.sites.lookup import find_site
from rankup.spec.jobspec import JobSpec

# A Python that proves as it is told, and runs everything else.
PYTHON = """#!/bin/bash
case "$*" in
*"import rankup.verify"*) exit "${MISSING:-0}" ;;
*"-m rankup verify"*)
  printf '%s\\n' "$@" >>"$FAKES/verify"
  echo "$RANKUP_LOST" >"$FAKES/lost"
  while [ "$1" != --out ]; do shift; done
  [ -z "$ANSWER" ] || echo "$ANSWER" >"$2"
  exit 1
  ;;
esac
exec "$REAL" "$@"
"""
TRAIN = (
    "import os, pathlib  # and rankup, in a real one\n"
    "pathlib.Path('trained').write_text(os.environ['RANKUP_LOST'])\n"
)
SAME, OTHER = '{"conclusion": "proved", "same": true}', '{"conclusion": "differs", "same": false}'


class Job:
    """Of no scheduler; one process."""

    def __init__(self, folder: Path, **values: Any) -> None:
        self.folder = folder
        (folder / "python").write_text(PYTHON)
        (folder / "python").chmod(0o755)
        (folder / "train.py").write_text(TRAIN)
        spec = JobSpec.model_validate(
            {
                "name": "job",
                "folder": folder,
                "command": ("train.py", "--lr", "a b"),
                "python": str(folder / "python"),
                "time": 7200,
                "monitor": False,
                **values,
            }
        )
        self.run = RunDir.create(folder / "runs", "job")
        self.text = render(spec, find_site("local", {}, folder), self.run.path)

    def execute(self, **env: str) -> int:
        script = self.folder / "job.sh"
        script.write_text(self.text)
        given = {
            "PATH": os.environ["PATH"],
            "FAKES": str(self.folder),
            "REAL": sys.executable,
            "ANSWER": "",
            **env,
        }
        done = subprocess.run(["bash", script], env=given, capture_output=True, text=True, timeout=120)
        self.log = done.stdout + done.stderr + (self.run.logs / "job.log").read_text()
        return done.returncode

    @property
    def trained(self) -> bool:
        return (self.folder / "trained").exists()

    @property
    def verify(self) -> list[str]:
        path = self.folder / "verify"
        return path.read_text().splitlines() if path.exists() else []


def test_a_proved_training_trains_and_a_hundredth_of_the_time_limit_is_for_two_starts(tmp_path: Path):
    job = Job(tmp_path)
    assert job.execute(ANSWER=SAME) == 0
    assert job.trained and "not proved" not in job.log
    words = job.verify
    assert words[:4] == ["-m", "rankup", "verify", "--quick"]
    assert words[words.index("--budget") + 1] == "72s"
    assert words[words.index("--nproc-per-node") + 1] == "1"
    assert words[words.index("--") :] == ["--", "train.py", "--lr", "a b"]


def test_a_difference_ends_the_job_before_it_trains_and_says_why(tmp_path: Path):
    job = Job(tmp_path)
    assert job.execute(ANSWER=OTHER) == 1
    assert not job.trained
    assert (job.run.path / "outcome").read_text() == "failed\n"
    assert "--no-proof" in (job.run.path / "why").read_text()


@pytest.mark.repeated
@pytest.mark.parametrize(
    ("env", "said"),
    [
        ({}, "not proved"),  # verify ended with an error
        ({"ANSWER": '{"conclusion": "not proved", "same": true}'}, "not proved"),
        ({"ANSWER": '{"conclusion": "not deterministic", "same": false}'}, "not proved"),
        ({"MISSING": "1"}, "has no rankup"),
    ],
)
def test_a_proof_that_cannot_be_made_is_a_line_in_the_log(tmp_path: Path, env: dict[str, str], said: str):
    job = Job(tmp_path)
    assert job.execute(**env) == 0
    assert job.trained
    assert any("not proved" in line and said in line for line in job.log.splitlines())


def test_a_program_without_rankup_is_not_run_for_a_proof(tmp_path: Path):
    job = Job(tmp_path)
    (tmp_path / "train.py").write_text(TRAIN.replace("rankup", "nothing"))
    assert job.execute(ANSWER=OTHER) == 0
    assert job.trained and not job.verify
    assert "not proved: train.py does not use rankup" in job.log


def test_a_later_attempt_proves_nothing(tmp_path: Path):
    job = Job(tmp_path)
    (job.run.path / "attempts").write_text("1 7 1700000000 node\n")
    assert job.execute(ANSWER=OTHER) == 0
    assert job.trained and not job.verify


@pytest.mark.repeated
@pytest.mark.parametrize("time", [None, 3599])
def test_a_short_job_says_that_nothing_was_proved(tmp_path: Path, time: int | None):
    job = Job(tmp_path, time=time)
    assert job.execute(ANSWER=OTHER) == 0
    assert job.trained and not job.verify
    assert "not proved: the job is shorter than an hour" in job.log


@pytest.mark.parametrize(
    "values", [{"proof": False}, {"container": "image.sif"}, {"command": ("./simulate",)}]
)
def test_a_job_without_a_proof_has_no_line_of_it(tmp_path: Path, values: dict[str, Any]):
    assert "prove" not in Job(tmp_path, **values).text


@pytest.mark.repeated
@pytest.mark.parametrize(
    ("values", "proof", "training"),
    [
        ({}, "", "stop"),
        ({"lost": "accept"}, "accept", "accept"),
        ({"env": {"RANKUP_LOST": "accept"}}, "accept", "accept"),
    ],
    ids=["default", "lost", "env"],
)
def test_a_job_stops_where_a_value_would_be_lost_unless_told_otherwise_and_its_proof_goes_on(
    tmp_path: Path, values: dict[str, Any], proof: str, training: str
):
    job = Job(tmp_path, **values)
    assert job.execute(ANSWER=SAME) == 0
    assert (tmp_path / "lost").read_text() == f"{proof}\n"
    assert (tmp_path / "trained").read_text() == training
