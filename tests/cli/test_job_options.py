"""The options of submit and render: each reaches the job, and only what was given counts as a flag."""

from __future__ import annotations

from typing import Any

import pytest
import typer

from rankup.cli.job_options import SCRIPT_LAST, flags_from, job_options
from rankup.cli.submitted_job import explain, job_from
from rankup.errors import RankupError
from rankup.spec.jobspec import RUN_ONLY, JobSpec

app = typer.Typer(add_completion=False, rich_markup_mode=None)
answers = []


@app.command(context_settings=SCRIPT_LAST)
@job_options("submit")
def command(mine: bool = False, run: bool = True, **asked: Any) -> None:
    """A command with options of its own."""
    flags = flags_from(asked)
    flags.pop("command", None)
    answers.append((flags, mine, job_from(asked) if run else None))


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("RANKUP_SITE", raising=False)
    (tmp_path / "train.py").touch()
    return tmp_path


def ask(*args):
    """What the command was called with: flags, its own option, the job."""
    answers.clear()
    app(args=list(args), standalone_mode=False)
    [answer] = answers
    return answer


def test_what_is_to_run_is_one_of_the_flags():
    assert flags_from({"command": ["train.py", "--lr", "1"], "as_module": False}) == {
        "command": ("train.py", "--lr", "1")
    }
    assert flags_from({"command": ["pkg.job"], "as_module": True}) == {"command": ("-m", "pkg.job")}
    assert flags_from({"command": None, "as_module": False}) == {}


def test_only_what_was_given_is_a_flag():
    flags, mine, resolved = ask("train.py", "--nodes", "2")
    assert (flags, mine) == ({}, False)
    assert resolved.spec.command == ("train.py", "--nodes", "2")  # options end at the script


GIVEN = {
    "name": (["--name", "x"], "x"),
    "nodes": (["--nodes", "2"], 2),
    "spare": (["--spare", "1"], 1),
    "gpus_per_node": (["--gpus-per-node", "4"], 4),
    "gpu_type": (["--gpu-type", "a100"], "a100"),
    "nproc_per_node": (["--nproc-per-node", "2"], 2),
    "cpus_per_task": (["--cpus-per-task", "8"], 8),
    "mem": (["--mem", "32G"], "32G"),
    "time": (["--time", "1h"], "1h"),
    "queue": (["--partition", "gpu"], "gpu"),
    "account": (["--account", "a"], "a"),
    "exclusive": (["--no-exclusive"], False),
    "directives": (["--directive", "--x=1", "--directive", "--y"], ("--x=1", "--y")),
    "launcher": (["--launcher", "srun"], "srun"),
    "fanout": (["--fanout", "ssh"], "ssh"),
    "max_restarts": (["--max-restarts", "1"], 1),
    "numa_binding": (["--numa-binding", "node"], "node"),
    "pre_modules": (["--pre-modules", "export X=1"], ("export X=1",)),
    "module_purge": (["--module-purge"], True),
    "modules": (["--module", "a", "--module", "b"], ("a", "b")),
    "venv": (["--venv", "v"], "v"),
    "conda": (["--conda", "c"], "c"),
    "pixi": (["--pixi", "p"], "p"),
    "container": (["--container", "i.sif"], "i.sif"),
    "container_runtime": (["--container-runtime", "pyxis"], "pyxis"),
    "binds": (["--bind", "/a:/b"], ("/a:/b",)),
    "stage": (["--stage", "data=/a=b.tar", "--stage", "env=e"], {"data": "/a=b.tar", "env": "e"}),
    "back": (["--back", "out/*", "--back", "logs"], ("out/*", "logs")),
    "env": (["--env", "A=b=c", "--env", "B="], {"A": "b=c", "B": ""}),
    "secrets": (["--env", "TOKEN"], ("TOKEN",)),
    "pre": (["--pre", "ulimit -n 4096"], ("ulimit -n 4096",)),
    "python": (["--python", "python3.12"], "python3.12"),
    "max_requeues": (["--max-requeues", "0"], 0),
    "stop_before": (["--stop-before", "10m"], "10m"),
    "saves": (["--saves", "a/*.pt", "--saves", "b"], ("a/*.pt", "b")),
    "threads": (["--threads", "4"], 4),
    "mail": (["--mail", "a@b.c"], "a@b.c"),
    "after": (["--after", "12", "--after", "13"], ("12", "13")),
    "after_any": (["--after-any", "12"], ("12",)),
    "array": (["--array", "0-9%2"], "0-9%2"),
    "freeze": (["--freeze"], True),
    "nccl_debug": (["--nccl-debug"], True),
    "preflight": (["--preflight"], True),
    "monitor": (["--no-monitor"], False),
    "proof": (["--no-proof"], False),
    "lost": (["--lost", "accept"], "accept"),
}


@pytest.mark.parametrize("key", GIVEN)
def test_every_option_is_the_key_of_its_name(key):
    args, value = GIVEN[key]
    flags, *_ = ask("--no-run", *args, "train.py")
    assert flags[key] == value
    assert {k: v for k, v in flags.items() if k != key and v} == {}


def test_every_key_of_a_job_has_an_option_but_for_its_place_and_command(folder):
    flags, *_ = ask("--no-run", "--runs-root", "r", "train.py")
    assert JobSpec.model_fields.keys() - GIVEN.keys() - flags.keys() == {"command", "folder", *RUN_ONLY}


def test_an_empty_value_asks_for_none():
    flags, *_ = ask("--no-run", "--module", "", "--mem", "", "train.py")
    assert flags == {"modules": (), "mem": ""}


def test_a_command_keeps_its_own_options():
    assert ask("--mine", "train.py")[1] is True


def test_m_names_a_module(folder):
    (folder / "pkg").mkdir()
    assert ask("-m", "pkg.job", "--lr", "1")[2].spec.command == ("-m", "pkg.job", "--lr", "1")


@pytest.mark.parametrize("way", [["job.toml"], ["--job", "job.toml"]])
def test_a_job_file_is_given_in_place_of_a_script_or_beside_it(folder, way):
    (folder / "job.toml").write_text('[job]\nscript = "train.py"\nnodes = 2\n[site]\nname = "della"\n')
    resolved = ask("--nodes", "3", *way)[2]
    assert (resolved.spec.command, resolved.spec.nodes, resolved.site.name) == (("train.py",), 3, "della")


def test_options_behind_a_job_file_are_refused(folder):
    with pytest.raises(RankupError, match="stands behind job"):
        ask("job.toml", "--nodes", "2")


def test_two_job_files_are_refused(folder):
    (folder / "job.toml").write_text('[job]\nscript = "train.py"\n')
    with pytest.raises(RankupError, match=r"the job is that of job\.toml"):
        ask("--job", "job.toml", "other.toml")


def test_a_secret_has_to_be_set(monkeypatch):
    monkeypatch.delenv("TOKEN", raising=False)
    with pytest.raises(RankupError, match="TOKEN is to be passed"):
        ask("--env", "TOKEN", "train.py")
    monkeypatch.setenv("TOKEN", "x")
    assert ask("--env", "TOKEN", "train.py")[2].spec.secrets == ("TOKEN",)


def test_explain_says_where_each_value_came_from():
    text = explain(ask("--site", "della", "--time", "90m", "--env", "A=b c", "train.py")[2])
    rows = {line.split()[0]: line for line in text.splitlines()}
    assert rows["time"].split(None, 1)[1].split("  ")[0] == "01:30:00"
    assert rows["time"].endswith("flag")
    assert rows["conda"].endswith("site della")
    assert "'b c'" in rows["env.A"]
    assert rows.keys() >= JobSpec.model_fields.keys() - {"env", *RUN_ONLY}
