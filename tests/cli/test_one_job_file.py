"""One job.toml for every command: what `run` and `submit` write is taken by both, by `render`, `verify` and `train`."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from commands import calling

pytestmark = pytest.mark.usefixtures("warm_python")

TRAIN = "import os, sys; print(os.environ['RANK'], os.environ.get('MINE'), os.getcwd(), *sys.argv[1:])"


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.delenv("RANKUP_SITE", raising=False)
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "train.py").write_text(TRAIN)
    monkeypatch.chdir(tmp_path)
    return tmp_path


call = calling()


def job_file(folder: Path, name: str) -> str:
    (path,) = folder.glob(f"runs/{name}/*/job.toml")
    return str(path)


def of_run(capfd, folder, *options):
    assert call(capfd, "run", "--name", "first", *options, "train.py", "--lr", "1")[0] == 0
    return job_file(folder, "first")


def of_submit(capfd, folder, *options):
    """The job.toml of a job that the site ``local`` has run to its end."""
    args = ("--site", "local", "--follow", "--name", "first", *options, "train.py", "--lr", "1")
    code, _, err = call(capfd, "submit", *args)
    assert code == 0, err
    return job_file(folder, "first")


@pytest.mark.parametrize("written_by", [pytest.param(of_run, marks=pytest.mark.campaign), of_submit])
def test_run_takes_the_file_of_a_run_and_of_a_submitted_job(capfd, folder, monkeypatch, written_by):
    path = written_by(capfd, folder)
    monkeypatch.chdir(folder / "elsewhere")
    code, out, err = call(capfd, "run", "--name", "second", path)
    assert (code, out) == (0, f"0 None {folder} --lr 1\n"), err


@pytest.mark.parametrize("written_by", [of_run, pytest.param(of_submit, marks=pytest.mark.campaign)])
def test_submit_takes_the_file_of_a_run_and_of_a_submitted_job(capfd, folder, monkeypatch, written_by):
    path = written_by(capfd, folder)
    monkeypatch.chdir(folder / "elsewhere")
    code, out, err = call(capfd, "submit", "--site", "local", "--follow", "--name", "second", path)
    assert code == 0, err
    assert f"0 None {folder} --lr 1\n" in out


@pytest.mark.parametrize("written_by", [of_run, pytest.param(of_submit, marks=pytest.mark.campaign)])
def test_render_takes_both_and_what_it_prints_runs(capfd, folder, written_by):
    path = written_by(capfd, folder)
    code, text, err = call(capfd, "render", "--site", "local", "--runs-root", "rendered", path)
    assert code == 0, err
    done = subprocess.run(["bash", "-c", text], cwd=folder, capture_output=True, text=True, timeout=240)
    assert f"0 None {folder} --lr 1\n" in done.stdout + done.stderr, done


def test_what_was_asked_for_stays_through_all_of_them(capfd, folder):
    options = (
        "--nproc-per-node",
        "2",
        "--threads",
        "1",
        "--env",
        "MINE=x y",
        "--time",
        "10m",
        "--module",
        "",
    )
    path = of_submit(capfd, folder, *options)
    code, out, err = call(capfd, "run", "--name", "second", path)
    assert (code, sorted(out.splitlines())) == (
        0,
        [f"[rank 0] 0 x y {folder} --lr 1", f"[rank 1] 1 x y {folder} --lr 1"],
    ), err
    again = Path(job_file(folder, "second")).read_text()
    for line in ('time = "00:10:00"', "threads = 1", "nproc_per_node = 2", 'MINE = "x y"'):
        assert line in again
    code, text, err = call(capfd, "render", "--site", "local", job_file(folder, "second"))
    assert code == 0, err
    assert "TIME=600 " in text and "export MINE='x y'" in text and "OMP_NUM_THREADS=1" in text


def test_what_a_run_here_does_not_set_up_is_said(capfd, folder):
    (folder / "job.toml").write_text('[job]\nscript = "train.py"\nmodules = ["cuda/12"]\narray = "0-3"\n')
    code, _, err = call(capfd, "run", "job.toml")
    assert code == 0
    assert err.splitlines()[0] == (
        "rankup: the job asks for modules, array, which only a submitted job gets: "
        "this runs in the environment as it is"
    )


def test_a_job_for_two_nodes_is_no_job_for_this_machine(capfd, folder):
    (folder / "job.toml").write_text('[job]\nscript = "train.py"\nnodes = 2\n')
    code, out, err = call(capfd, "run", "job.toml")
    assert (code, out) == (2, "") and "[no-allocation]" in err and "rankup submit" in err
    assert call(capfd, "run", "--nnodes", "1", "job.toml")[0] == 0


def test_a_job_for_gpus_that_are_not_here_is_refused_until_its_processes_are_named(capfd, folder):
    (folder / "job.toml").write_text('[job]\nscript = "train.py"\ngpus_per_node = 99\n')
    code, _, err = call(capfd, "run", "job.toml")
    assert code == 2 and "[too-few-gpus]" in err
    assert call(capfd, "run", "--nproc-per-node", "1", "job.toml")[0] == 0


def test_the_jobs_virtual_environment_is_used(capfd, folder):
    (folder / "venv" / "bin").mkdir(parents=True)
    python = folder / "venv" / "bin" / "python"
    python.write_text(f'#!/bin/sh\necho "venv $VIRTUAL_ENV"\nexec {sys.executable} "$@"\n')
    python.chmod(0o755)
    (folder / "job.toml").write_text('[job]\nscript = "train.py"\nvenv = "venv"\n')
    code, out, err = call(capfd, "run", "job.toml")
    assert (code, out.splitlines()[0]) == (0, f"venv {folder / 'venv'}"), err


def test_train_takes_the_file_of_a_training_and_flags_win_over_it(capfd, folder):
    options = ("--nproc-per-node", "1", "--dry-run", "--lr", "0.5", "--seed", "7")
    assert call(capfd, "train", "linear", "--name", "first", *options)[0] == 0
    path = job_file(folder, "first")
    code, _, err = call(capfd, "train", "--name", "second", "--seed", "8", path)
    assert code == 0, err
    command = Path(job_file(folder, "second")).read_text()
    assert '\\"lr\\": 0.5' in command and '\\"seed\\": 8' in command and '\\"name\\": \\"linear\\"' in command
    code, _, err = call(capfd, "train", of_run_of_a_script(folder))
    assert code == 2 and "[no-training]" in err


def of_run_of_a_script(folder: Path) -> str:
    path = folder / "script.toml"
    path.write_text('[job]\nscript = "train.py"\n')
    return str(path)
