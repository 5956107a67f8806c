"""Mistakes that can be seen before anything is started, and what is filled in."""

from __future__ import annotations

import sys

import pytest

from rankup.core.rundir import default_name
from rankup.errors import RankupError
from rankup.run import resolve as module
from rankup.run.job import LocalJob
from rankup.run.resolve import parse_endpoint, resolve


@pytest.fixture(autouse=True)
def four_cores_and_no_gpu(monkeypatch, tmp_path):
    monkeypatch.setattr(module, "cpu_affinity", lambda: [0, 1, 2, 3])
    monkeypatch.setattr(module, "count_gpus", lambda env: int(env.get("GPUS", 0)))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.py").write_text("")
    (tmp_path / "notes.txt").write_text("")
    (tmp_path / "pkg").mkdir()
    (tmp_path / "pkg" / "__main__.py").write_text("")


@pytest.mark.parametrize(
    ("job", "code", "words"),
    [
        (LocalJob(()), "no-script", "nothing to run"),
        (LocalJob(("-m",)), "no-script", "name of a module"),
        (LocalJob(("trian.py",)), "script-not-found", "did you mean 'train.py'"),
        (LocalJob(("-m", "nosuch.module")), "module-not-found", "nosuch.module"),
        (LocalJob(("./notes.txt",)), "script-not-executable", "neither a Python script nor executable"),
        (LocalJob(("train.py",), nproc=0), "bad-process-count", "--nproc-per-node is 0"),
        (LocalJob(("train.py",), max_restarts=-1), "bad-restart-count", "-1"),
        (LocalJob(("train.py",), threads=0), "bad-thread-count", "0"),
        (LocalJob(("train.py",), nnodes=0), "bad-node-count", "--nnodes is 0"),
        (LocalJob(("train.py",), node_rank=1), "incomplete-nodes", "--nnodes and --rdzv-endpoint"),
        (LocalJob(("train.py",), nnodes=2, node_rank=0), "incomplete-nodes", "--rdzv-endpoint"),
        (LocalJob(("train.py",), nnodes=2, node_rank=2, endpoint="h:1"), "bad-node-rank", "between 0 and 1"),
        (LocalJob(("train.py",), nnodes=2, node_rank=0, endpoint="h"), "bad-endpoint", "HOST:PORT"),
    ],
)
def test_a_mistake_is_one_clear_error(job, code, words):
    with pytest.raises(RankupError, match=words) as caught:
        resolve(job, {})
    assert caught.value.code == code
    assert caught.value.exit_code == 2


@pytest.mark.parametrize(
    "text", ["host", ":1", "host:", "host:0", "host:65536", "host:x", "0.0.0.0:29400", "[::]:1"]
)
def test_what_is_no_endpoint(text):
    with pytest.raises(RankupError) as caught:
        parse_endpoint(text)
    assert caught.value.code == "bad-endpoint"


@pytest.mark.parametrize(
    ("text", "endpoint"),
    [("n1:29400", ("n1", 29400)), ("10.0.0.1:1", ("10.0.0.1", 1)), ("[fd00::1]:2", ("fd00::1", 2))],
)
def test_what_is_an_endpoint(text, endpoint):
    assert parse_endpoint(text) == endpoint


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
    assert resolve(LocalJob(command), {}).argv == argv


@pytest.mark.parametrize(
    ("gpus", "nproc", "launcher"), [(0, 1, "single"), (1, 1, "single"), (8, 8, "torchrun")]
)
def test_auto_is_one_process_per_gpu_else_one(gpus, nproc, launcher):
    resolved = resolve(LocalJob(("train.py",)), {"GPUS": str(gpus)})
    assert (resolved.nproc, resolved.launcher) == (nproc, launcher)


@pytest.mark.parametrize(
    ("job", "env", "threads"),
    [
        (LocalJob(("train.py",), nproc=1), {}, 4),
        (LocalJob(("train.py",), nproc=2), {}, 2),
        (LocalJob(("train.py",), nproc=9), {}, 1),
        (LocalJob(("train.py",), nproc=2), {"OMP_NUM_THREADS": "7"}, None),
        (LocalJob(("train.py",), nproc=2, env={"OMP_NUM_THREADS": "7"}), {}, None),
        (LocalJob(("train.py",), nproc=2, threads=3), {"OMP_NUM_THREADS": "7"}, 3),
    ],
)
def test_threads_are_cores_by_processes_unless_the_user_has_said_so(job, env, threads):
    assert resolve(job, env).threads == threads


def test_restarts_need_torchrun_also_for_one_process():
    assert resolve(LocalJob(("train.py",), max_restarts=1), {}).launcher == "torchrun"


def test_several_processes_need_torch_and_one_does_not(monkeypatch):
    monkeypatch.setattr(module.importlib.util, "find_spec", lambda name: None)
    assert resolve(LocalJob(("train.py",), nproc=1), {}).launcher == "single"
    with pytest.raises(RankupError, match="need torch") as caught:
        resolve(LocalJob(("train.py",), nproc=2), {})
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
