"""Mistakes that can be seen before anything is started, and what is filled in."""

from __future__ import annotations

import sys

import pytest

from rankup.core.endpoint import Endpoint
from rankup.core.rundir import RunDir, default_name
from rankup.errors import RankupError
from rankup.findings.error import FindingsError
from rankup.resolve import here as module
from rankup.resolve.here import resolve_here
from rankup.run import environment


@pytest.fixture(autouse=True)
def four_cores_and_no_gpu(monkeypatch, tmp_path):
    monkeypatch.setattr(environment, "cpu_affinity", lambda: [0, 1, 2, 3])
    monkeypatch.setattr(module, "count_gpus", lambda env: int(env.get("GPUS", 0)))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.py").write_text("")
    (tmp_path / "notes.txt").write_text("")
    (tmp_path / "pkg").mkdir()
    (tmp_path / "pkg" / "__main__.py").write_text("")


def ask(*command, here=None, **flags):
    """The job of these flags, in the environment ``here``."""
    return resolve_here(flags, command=command or ("train.py",), env=here or {})


@pytest.mark.parametrize(
    ("command", "flags", "code", "words"),
    [
        (("-m",), {}, "no-script", "name of a module"),
        (("trian.py",), {}, "script-not-found", "did you mean 'train.py'"),
        ((".",), {}, "script-not-found", "'.' is a folder without __main__.py"),
        (("-m", "nosuch.module"), {}, "module-not-found", "nosuch.module"),
        (("./notes.txt",), {}, "script-not-executable", "neither a Python script nor executable"),
        ((), {"nproc_per_node": 0}, "bad-nproc-per-node", "--nproc-per-node must be at least 1, got 0"),
        ((), {"max_restarts": -1}, "bad-max-restarts", "-1"),
        ((), {"threads": 0}, "bad-threads", "--threads must be at least 1, got 0"),
        ((), {"nodes": 0}, "bad-nodes", "0"),
        ((), {"node_rank": 1}, "incomplete-nodes", "--nnodes and --rdzv-endpoint"),
        ((), {"nodes": 2, "node_rank": 0}, "incomplete-nodes", "--rdzv-endpoint"),
        (
            (),
            {"nodes": 2, "node_rank": 2, "rdzv_endpoint": "h:1"},
            "bad-node-rank",
            "must be less than --nnodes",
        ),
        ((), {"nodes": 2, "node_rank": 0, "rdzv_endpoint": "h"}, "bad-rdzv-endpoint", "HOST:PORT"),
    ],
)
def test_a_mistake_is_one_clear_error(command, flags, code, words):
    with pytest.raises(RankupError, match=words) as caught:
        ask(*command, **flags)
    assert caught.value.code == code
    assert caught.value.exit_code == 2


def test_all_mistakes_of_a_run_are_found_at_once():
    with pytest.raises(FindingsError) as caught:
        ask("trian.py", threads=0, max_restarts=-1, secrets=("TOKEN",))
    codes = [finding.code for finding in caught.value.findings]
    assert sorted(codes) == ["bad-max-restarts", "bad-threads", "script-not-found", "unset-secret"]
    assert "--threads must be at least 1, got 0" in str(caught.value)


def test_nothing_to_run_is_said():
    with pytest.raises(RankupError, match="nothing to run"):
        resolve_here({})


@pytest.mark.parametrize("text", ["host", ":1", "host:", "host:65536", "host:x", "0.0.0.0:29400", "[::]:1"])
def test_an_invalid_endpoint_is_refused(text):
    with pytest.raises(ValueError, match=r"HOST:PORT|no other node can reach"):
        Endpoint.parse(text)


@pytest.mark.parametrize(
    ("text", "endpoint"),
    [("n1:29400", ("n1", 29400)), ("10.0.0.1:1", ("10.0.0.1", 1)), ("[fd00::1]:2", ("fd00::1", 2))],
)
def test_a_valid_endpoint_is_read_and_written(text, endpoint):
    assert Endpoint.parse(text) == endpoint
    assert str(Endpoint.parse(text)) == text


@pytest.mark.parametrize(
    ("command", "argv"),
    [
        (("train.py", "--lr", "1"), (sys.executable, "train.py", "--lr", "1")),
        (("-m", "json.tool", "x"), (sys.executable, "-m", "json.tool", "x")),
        (("pkg", "x"), (sys.executable, "pkg", "x")),
        (("/bin/sh", "-c", "true"), ("/bin/sh", "-c", "true")),
    ],
)
def test_what_a_rank_executes(command, argv):
    assert ask(*command).spec.rank_command == argv


@pytest.mark.parametrize(
    ("gpus", "nproc", "launcher"), [(0, 1, "single"), (1, 1, "single"), (8, 8, "torchrun")]
)
def test_auto_is_one_process_per_gpu_else_one(gpus, nproc, launcher):
    spec = ask(here={"GPUS": str(gpus)}).spec
    assert (spec.nproc_per_node, spec.launcher) == (nproc, launcher)


@pytest.mark.parametrize(
    ("flags", "env", "threads"),
    [
        ({"nproc_per_node": 1}, {}, 4),
        ({"nproc_per_node": 2}, {}, 2),
        ({"nproc_per_node": 9}, {}, 1),
        ({"nproc_per_node": 2}, {"OMP_NUM_THREADS": "7"}, 7),
        ({"nproc_per_node": 2, "env": {"OMP_NUM_THREADS": "7"}}, {}, 7),
        ({"nproc_per_node": 2, "threads": 3}, {"OMP_NUM_THREADS": "7"}, 3),
    ],
)
def test_threads_are_cores_by_processes_unless_the_user_has_said_so(flags, env, threads, tmp_path):
    made = environment.for_processes(env, ask(**flags).spec, RunDir(tmp_path))
    assert made["OMP_NUM_THREADS"] == str(threads)


@pytest.mark.parametrize(
    ("flags", "env", "lost"),
    [
        ({}, {}, None),
        ({}, {"RANKUP_LOST": "stop"}, "stop"),
        ({"lost": "accept"}, {"RANKUP_LOST": "stop"}, "accept"),
    ],
)
def test_lost_is_what_the_flag_says_else_the_environment_else_nothing(flags, env, lost, tmp_path):
    made = environment.for_processes(env, ask(**flags).spec, RunDir(tmp_path))
    assert made.get("RANKUP_LOST") == lost


def test_restarts_need_torchrun_also_for_one_process():
    assert ask(max_restarts=1).spec.launcher == "torchrun"


def test_a_change_decides_anew_what_followed_and_keeps_what_was_asked():
    job = resolve_here({"nproc_per_node": 2}, earlier=ask(threads=3))
    assert (job.spec.launcher, job.spec.threads, job.origin["threads"]) == ("torchrun", 3, "flag")
    assert resolve_here({"nproc_per_node": 1}, earlier=job).spec.launcher == "single"


def test_several_processes_need_torch_and_one_does_not(monkeypatch):
    monkeypatch.setattr(module.importlib.util, "find_spec", lambda name: None)
    assert ask(nproc_per_node=1).spec.launcher == "single"
    with pytest.raises(RankupError, match="require torch") as caught:
        ask(nproc_per_node=2)
    assert caught.value.code == "torch-missing"
    assert caught.value.context == sys.executable


@pytest.mark.parametrize(
    ("command", "name"),
    [
        (("train.py",), "train"),
        (("-m", "pkg.train"), "train"),
        (("./_my script!.py",), "my-script-"),
        (("./---.py",), "run"),
    ],
)
def test_a_run_is_named_after_its_script(command, name):
    assert default_name(command) == name


def test_a_venv_that_is_no_text_is_an_error_of_the_file(tmp_path):
    file = tmp_path / "job.toml"
    file.write_text('[job]\nscript = "train.py"\nvenv = 1\n')
    with pytest.raises(RankupError) as caught:
        resolve_here({}, file=file)
    assert caught.value.code == "bad-venv"
