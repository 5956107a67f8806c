"""``rankup env`` as a user meets it."""

from __future__ import annotations

import json
import os
import platform
import subprocess
from pathlib import Path

import pytest

from rankup.cli import app

ARCH = platform.machine()
OTHER = "aarch64" if ARCH == "x86_64" else "x86_64"
# A Python that makes an "environment" of itself, with no torch in it.
PYTHON = """\
#!/usr/bin/env bash
case "$*" in
  *"-m venv "*) mkdir -p "${@: -1}/bin" && cp "$0" "${@: -1}/bin/python" ;;
  *"-m pip"*) echo "pip says ${@: -1}"; exit "${FAKE_PIP:-0}" ;;
  *find_spec*) echo none none no ;;
  *) exec python3 "$@" ;;
esac
"""
# A scheduler that runs what is submitted at once.
SBATCH = """\
#!/usr/bin/env bash
script=${@: -1}
echo "$script" >"$RECORD"
echo 17
"""


@pytest.fixture(autouse=True)
def folder(monkeypatch, tmp_path) -> Path:
    """An empty current directory, no site of this machine, and ``python-of-a-test`` on PATH."""
    here = tmp_path / "here"
    here.mkdir()
    monkeypatch.chdir(here)
    monkeypatch.setenv("RANKUP_SITE", "local")
    monkeypatch.delenv("RANKUP_SITES", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    command(tmp_path, "python-of-a-test", PYTHON)
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:{os.environ['PATH']}")
    return here


def command(folder: Path, name: str, text: str) -> None:
    (folder / "bin").mkdir(exist_ok=True)
    path = folder / "bin" / name
    path.write_text(text)
    path.chmod(0o755)


def far_site(folder: Path) -> None:
    """A SLURM site whose compute nodes are of another architecture than this machine."""
    sites = folder / ".rankup" / "sites"
    sites.mkdir(parents=True)
    (sites / "far.toml").write_text(f'scheduler = "slurm"\n[node]\narch = "{OTHER}"\ngpus = 4\n')


def call(capfd, *args: str) -> tuple[int, str, str]:
    """Exit code, stdout and stderr of ``rankup env create ARGS``, those of its children included."""
    with pytest.raises(SystemExit) as ended:
        app.main(["env", "create", *args])
    out, err = capfd.readouterr()
    return int(ended.value.code or 0), out, err


def test_it_builds_here_and_says_how_to_use_it(capfd, folder):
    code, out, err = call(capfd, "--python", "python-of-a-test", "--name", "e", "--torch", "torch==2.6")
    path = folder / "envs" / f"e-{ARCH}"
    assert code == 0, err
    assert "pip says torch==2.6" in out
    assert out.endswith(f"submit with it: rankup submit --venv {path}\n")
    assert (path / "environment.json").exists()


def test_json_is_alone_on_stdout(capfd, folder):
    code, out, err = call(
        capfd, "--python", "python-of-a-test", "--torch", "none", "--path", "my envs", "--json"
    )
    facts = json.loads(out)
    assert code == 0, err
    assert facts["path"] == str(folder / "my envs" / f"local-{ARCH}")
    assert (facts["arch"], facts["torch"], facts["gpu_available"]) == (ARCH, None, False)
    assert "pip says" not in out and "built" in err


def test_a_build_that_fails_is_exit_code_1_and_leaves_nothing(capfd, folder, monkeypatch):
    monkeypatch.setenv("FAKE_PIP", "1")
    code, _, err = call(capfd, "--python", "python-of-a-test")
    assert code == 1
    assert err.index("error: pip could not install torch") < err.index("[environment-failed]")
    assert list((folder / "envs").iterdir()) == []


def test_a_dry_run_prints_bash_and_builds_nothing(capfd, folder):
    code, out, _ = call(capfd, "--dry-run", "--module", "gcc/12", "--cuda", "12.6")
    assert code == 0
    assert out.startswith("#!/usr/bin/env bash\n")
    assert "module load gcc/12\n" in out and "cuda=12.6\n" in out
    assert subprocess.run(["bash", "-n"], input=out, text=True).returncode == 0
    assert list(folder.iterdir()) == []


def test_a_dry_run_where_a_job_is_needed_says_how_it_would_be_submitted(capfd, folder):
    far_site(folder)
    code, out, err = call(capfd, "--site", "far", "--dry-run", "--json")
    answer = json.loads(out)
    assert code == 0, err
    assert answer["script"].startswith("#!/usr/bin/env bash\n")
    (submit,) = answer["commands"]
    assert submit.startswith("sbatch ") and "env-far" in submit
    assert not (folder / "envs").exists()


def test_where_compute_nodes_differ_the_script_is_submitted(capfd, folder, tmp_path, monkeypatch):
    far_site(folder)
    command(tmp_path, "sbatch", SBATCH)
    monkeypatch.setenv("RECORD", str(tmp_path / "record"))
    followed = []

    def follow_to_end(job, log, *, to_stderr):
        followed.append(job)
        return 0, object()

    monkeypatch.setattr("rankup.cli.env_build.follow_to_end", follow_to_end)
    code, _, err = call(
        capfd, "--site", "far", "--account", "nn1", "--queue", "short", "--directive", "--qos=devel"
    )
    assert code == 0, err
    (job,) = followed
    assert (job.ids(), job.spec.account, job.spec.queue) == (("17",), "nn1", "short")
    assert job.spec.directives == ("--qos=devel",)
    assert (tmp_path / "record").read_text().strip() == str(job.run.path / "job.sh")
    script = folder / "envs" / "far.sh"
    assert job.spec.command == ("bash", str(script))
    assert script.read_text().startswith("#!/usr/bin/env bash\n") and os.access(script, os.X_OK)
    assert f"job 17, {job.run.path} builds {folder}/envs/far-{OTHER}" in err


def test_an_environment_that_is_there_is_said_before_the_queue(capfd, folder):
    far_site(folder)
    path = folder / "envs" / f"far-{OTHER}"
    path.mkdir(parents=True)
    (path / "environment.json").write_text("{}")
    code, _, err = call(capfd, "--site", "far")
    assert code == 2 and "[environment-exists]" in err and str(path) in err


@pytest.mark.parametrize(
    ("args", "code"),
    [
        (("--cuda", "twelve"), "bad-cuda-version"),
        (("--name", "a/b"), "bad-environment-name"),
        (("--requirements", "nowhere.txt"), "requirements-not-found"),
        (("--site", "nowhere"), "unknown-site"),
    ],
)
def test_wrong_usage_is_one_error_and_exit_code_2(capfd, folder, args, code):
    ended, out, err = call(capfd, *args)
    assert (ended, out) == (2, "")
    assert err.startswith("error: ") and f"[{code}]" in err
    assert list(folder.iterdir()) == []
