"""The code of a run as it was at the submit: which files, what is noted, and what is refused."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest

from fake_slurm import FakeSlurm
from rankup.batch import freeze as freezing
from rankup.batch.freeze import read_frozen
from rankup.batch.resume import resume
from rankup.batch.store import SubmittedRun
from rankup.batch.submit import submit
from rankup.errors import RankupError
from rankup.resolve.precedence import resolve


def git(folder: Path, *words: str) -> str:
    name = ("-c", "user.name=me", "-c", "user.email=me@example.org")
    done = subprocess.run(["git", "-C", folder, *name, *words], check=True, capture_output=True, text=True)
    return done.stdout.strip()


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A repository with a changed, a deleted, an untracked and an ignored file; the job's folder is below its top."""
    monkeypatch.setenv("HOME", str(tmp_path))
    folder = tmp_path / "project"
    (folder / "jobs" / "data").mkdir(parents=True)
    for name, text in {
        ".gitignore": "data/\n",
        "jobs/train.py": "old",
        "gone.py": "",
        "model.py": "m",
    }.items():
        (folder / name).write_text(text)
    git(folder, "init", "--quiet")
    git(folder, "add", ".")
    git(folder, "commit", "--quiet", "-m", "first")
    (folder / "jobs" / "train.py").write_text("new")
    (folder / "gone.py").unlink()
    (folder / "jobs" / "untracked.py").write_text("u")
    (folder / "jobs" / "data" / "ignored.bin").write_text("i")
    return folder


@pytest.fixture
def slurm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeSlurm:
    return FakeSlurm(tmp_path, monkeypatch)


def submitted(folder: Path, script: str = "train.py", **flags: object) -> SubmittedRun:
    flags = {"time": "1h", "name": "mine", "freeze": True, **flags}
    job = resolve(flags, command=(script,), file=None, site="slurm", env=os.environ, folder=folder)
    return submit(job, env=os.environ)


def copied(run: SubmittedRun) -> dict[str, str]:
    code = run.run.path / "code"
    return {
        str(path.relative_to(code)): path.read_text() for path in sorted(code.rglob("*")) if path.is_file()
    }


def test_the_working_tree_of_a_repository_is_frozen_and_the_job_runs_in_it(project: Path, slurm: FakeSlurm):
    submitted(project / "jobs")  # whose run directory is no code of the next
    run = submitted(project / "jobs")
    assert copied(run) == {
        ".gitignore": "data/\n", "jobs/train.py": "new", "jobs/untracked.py": "u", "model.py": "m"
    }  # fmt: skip
    assert f"cd {run.run.path}/code/jobs || finish" in (run.run.path / "job.sh").read_text()
    frozen = read_frozen(run.run)
    assert frozen is not None
    assert (frozen.root, frozen.commit, frozen.dirty) == (
        str(project),
        git(project, "rev-parse", "HEAD"),
        True,
    )
    lines = subprocess.run(
        ["sha256sum", *copied(run)], cwd=run.run.path / "code", check=True, capture_output=True, text=True
    ).stdout
    listed = subprocess.run(["sha256sum"], input=lines, check=True, capture_output=True, text=True).stdout
    assert listed.split()[0] == frozen.sha256
    assert (
        str(frozen)
        == f"frozen: commit {frozen.commit[:12]}, with changes, 4 files, sha256 {frozen.sha256[:12]}"
    )


def test_a_resume_runs_the_frozen_code_unless_it_is_told_otherwise(project: Path, slurm: FakeSlurm):
    run = submitted(project / "jobs")
    noted = (run.run.path / "code.json").read_text()
    (project / "jobs" / "train.py").write_text("newest")
    again = resume(run, {}, env=os.environ)
    assert copied(again)["jobs/train.py"] == "new" and (run.run.path / "code.json").read_text() == noted
    assert f"cd {run.run.path}/code/jobs ||" in (run.run.path / "job.sh").read_text()
    resume(again, {"freeze": False}, env=os.environ)
    assert f"cd {project}/jobs ||" in (run.run.path / "job.sh").read_text()


def test_a_folder_without_git_is_copied_without_runs_caches_and_environments(
    tmp_path: Path, slurm: FakeSlurm
):
    folder = tmp_path / "plain"
    for name in ("train.py", "pkg/a.py", "pkg/__pycache__/a.pyc", "env/pyvenv.cfg", "env/bin/python"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(name)
    run = submitted(folder)
    assert copied(run) == {"train.py": "train.py", "pkg/a.py": "pkg/a.py"}
    assert json.loads((run.run.path / "code.json").read_text())["commit"] == ""


@pytest.mark.parametrize(
    ("script", "code"), [("train.py", "too-much-to-freeze"), ("data/x.py", "script-not-frozen")]
)
def test_what_cannot_be_frozen_is_refused_and_leaves_nothing(
    project: Path, slurm: FakeSlurm, monkeypatch: pytest.MonkeyPatch, script: str, code: str
):
    (project / "jobs" / "data" / "x.py").write_text("ignored")
    if code == "too-much-to-freeze":
        monkeypatch.setattr(freezing, "LIMIT_MIB", 1)
        (project / "weights.bin").write_bytes(b"0" * (2 << 20))
    with pytest.raises(RankupError) as refused:
        submitted(project / "jobs", script)
    assert refused.value.code == code
    assert code != "too-much-to-freeze" or "weights.bin" in refused.value.context
    assert not [*(project / "jobs" / "runs").glob("*")] and not slurm.calls("sbatch")
