"""The first screen of a script is what its job alone has; what follows is the same in every job, and only defined."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from rankup.errors import RankupError
from rankup.script.render import render
from rankup.sites.lookup import find_site
from rankup.spec.jobspec import JobSpec

HEADING = "# The same in every job"
SHAPES = [
    ("slurm", "torchrun", {"nodes": 2, "nproc_per_node": 4}),
    ("slurm", "srun", {"nodes": 2, "nproc_per_node": 4}),
    ("pbs", "torchrun", {"nodes": 2, "nproc_per_node": 4}),
    ("pbs", "mpirun", {"nodes": 2, "nproc_per_node": 4}),
    ("local", "single", {}),
]


def script(site: str, launcher: str, shape: dict[str, Any], folder: Path, **values: Any) -> str:
    spec = {
        "name": "job",
        "folder": folder,
        "command": ("train.py",),
        "launcher": launcher,
        **shape,
        **values,
    }
    return render(JobSpec.model_validate(spec), find_site(site, {}, folder), folder / "runs" / "job" / "1")


@pytest.mark.parametrize(("site", "launcher", "shape"), SHAPES)
def test_what_follows_the_first_screen_knows_nothing_of_the_job(
    tmp_path: Path, site: str, launcher: str, shape: dict[str, Any]
):
    other = {"command": ("other.py", "--lr", "1"), "name": "other", "time": 7200, "env": {"A": "b"}}
    other |= {"max_requeues": 2, "venv": "/env", "pre": ("ulimit -c 0",), "python": "python3.11"}
    one = script(site, launcher, shape, tmp_path, time=3600)
    two = script(site, launcher, shape, tmp_path / "elsewhere", **other)
    screens = [text.partition(HEADING) for text in (one, two)]
    assert screens[0][2] == screens[1][2] != ""
    assert screens[0][0].count("\n") < 70


@pytest.mark.parametrize("tables", [("defaults",), ("when", "gpu")])
def test_a_comment_says_whether_lines_are_the_jobs_or_the_profiles(tmp_path: Path, tables: tuple[str, ...]):
    lines: dict[str, Any] = {"pre_modules": ["module use /a"], "pre": ["ulimit -c 0"]}
    for table in reversed(tables):
        lines = {table: lines}
    profile = find_site("slurm", {}, tmp_path).model_copy(update={"name": "mycluster", **lines})
    spec = {"name": "job", "folder": tmp_path, "command": ("train.py",), "pre_modules": ("module use /a",)}
    text = render(JobSpec.model_validate({**spec, "pre": ("ulimit -c 1",)}), profile, None)
    assert "  # From the profile mycluster, before the modules:\nmodule use /a\n" in text
    assert "  # Yours:\nulimit -c 1\n" in text
    text = render(JobSpec.model_validate({**spec, "pre": ("ulimit -c 0",)}), profile, None)
    assert "  # From the profile mycluster:\nulimit -c 0\n" in text and "Yours" not in text


@pytest.mark.parametrize(("site", "launcher", "shape"), SHAPES)
def test_nothing_is_executed_before_the_last_line(
    tmp_path: Path, site: str, launcher: str, shape: dict[str, Any]
):
    text = script(site, launcher, shape, tmp_path)
    assert text.endswith('\nmain "$@"\n')
    path = tmp_path / "job.sh"
    path.write_text(text.removesuffix('main "$@"\n') + "set\n")
    # Without any program on PATH, and without a word of a scheduler.
    done = subprocess.run(["/bin/bash", path], env={"PATH": ""}, capture_output=True, text=True, cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert "\nJOB=" not in done.stdout and "\nmain () \n" in done.stdout
    assert [file.name for file in tmp_path.iterdir()] == ["job.sh"]


def test_what_the_users_own_lines_declare_reaches_the_program_and_here_documents_are_kept(tmp_path: Path):
    pre = ("declare -x FIRST=1", "typeset -x SECOND=2", "cat >text <<EOF", "  as it is", "EOF")
    command = ("bash", "-c", 'echo "found $FIRST $SECOND $(cat text)"')
    spec = {"name": "job", "folder": tmp_path, "command": command, "pre": pre, "python": sys.executable}
    path = tmp_path / "job.sh"
    path.write_text(render(JobSpec.model_validate(spec), find_site("local", {}, tmp_path), None))
    done = subprocess.run(["bash", path], capture_output=True, text=True, timeout=240)
    assert "found 1 2   as it is\n" in done.stdout, done.stdout + done.stderr


@pytest.mark.parametrize("line", ["say() { echo; }", "true; function say { :; }", "main () (exit 1)"])
def test_a_function_of_the_user_never_replaces_one_of_the_script(tmp_path, line):
    job = {"command": ("train.py",), "name": "x", "folder": tmp_path, "time": 60, "pre": (line,)}
    with pytest.raises(RankupError, match="is a function of the job's own script") as caught:
        render(JobSpec.model_validate(job), find_site("local", {}, tmp_path), None)
    assert (caught.value.code, caught.value.context) == ("function-of-the-script", line)


def test_a_function_of_another_name_and_other_languages_are_left_alone(tmp_path):
    job = {
        "command": ("train.py",),
        "name": "x",
        "folder": tmp_path,
        "pre": ("mine() { :; }", "int main() {", "main()"),
    }
    assert "mine()" in render(JobSpec.model_validate(job), find_site("local", {}, tmp_path), None)
