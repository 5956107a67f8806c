"""A launcher is a pure function: whole token lists."""

from __future__ import annotations

import subprocess

import pytest

from rankup.errors import RankupError
from rankup.launchers.base import Start, launcher_named
from rankup.launchers.torchrun import agent as torchrun_agent
from rankup.spec.jobspec import JobSpec

COMMAND = ("/py", "train.py", "--lr", "1")


def spec(**more):
    """A job of torchrun, without more."""
    basic = {"command": COMMAND[1:], "name": "x", "folder": "/", "python": "/py", "launcher": "torchrun"}
    return JobSpec.model_validate({**basic, **more})


TORCHRUN = ["/py", "-m", "torch.distributed.run"]


def test_a_single_process_is_the_command_itself():
    assert launcher_named("single")(spec(launcher="single"), "r", ["/guard"]) == ["/guard", *COMMAND]


@pytest.mark.parametrize(
    ("job", "options"),
    [
        pytest.param(
            spec(nproc_per_node=4, max_restarts=2),
            [
                "--nnodes=1",
                "--nproc_per_node=4",
                "--max_restarts=2",
                "--standalone",
                "--local_addr=127.0.0.1",
            ],
            id="one node",
        ),
        pytest.param(
            spec(nproc_per_node=2, nodes=3, node_rank=1, rdzv_endpoint="n1:29400"),
            [
                *("--nnodes=3", "--nproc_per_node=2", "--max_restarts=0"),
                *("--node_rank=1", "--rdzv_backend=static", "--rdzv_id=r"),
                *("--master_addr=n1", "--master_port=29400"),
            ],
            id="several nodes, static",
        ),
        pytest.param(
            spec(nodes=2, max_restarts=1, rdzv_endpoint="n1:29400"),
            [
                *("--nnodes=2", "--nproc_per_node=1", "--max_restarts=1"),
                *("--rdzv_backend=c10d", "--rdzv_id=r", "--rdzv_endpoint=n1:29400"),
                *("--rdzv_conf=is_host=1", "--local_addr=n1"),
            ],
            id="restarts, on the head",
        ),
        pytest.param(
            spec(nodes=2, node_rank=1, max_restarts=1, rdzv_endpoint="[fd00::1]:1"),
            [
                *("--nnodes=2", "--nproc_per_node=1", "--max_restarts=1"),
                *("--rdzv_backend=c10d", "--rdzv_id=r", "--rdzv_endpoint=[fd00::1]:1"),
                "--rdzv_conf=is_host=0",
            ],
            id="restarts, elsewhere, IPv6",
        ),
    ],
)
def test_torchrun(job, options):
    assert launcher_named("torchrun")(job, "r", ["/guard"]) == [
        *TORCHRUN,
        *options,
        "--no_python",
        "--",
        "/guard",
        *COMMAND,
    ]


def test_an_unknown_launcher_is_named_with_those_there_are():
    with pytest.raises(RankupError, match="did you mean 'torchrun'") as caught:
        launcher_named("torchrunn")
    assert "single" in caught.value.hint


# As torch 2.13 writes it when the store is gone: each line of a record begins alike.
AT = "E1127 09:20:55.924000 18318 torch/distributed/elastic/agent/server/api.py:1012]"
LAST_WORDS = f"""\
W1127 09:20:54.000000 18318 torch/distributed/run.py:774] a warning
plain words [with brackets]
{AT} Error waiting on exit barrier. Elapsed: 0.12 seconds
{AT} Traceback (most recent call last):
{AT}   File "api.py", line 1003, in _exit_barrier
{AT} torch.distributed.DistNetworkError: Connection closed by peer
{AT} frame #0: c10::Error
E1127 09:20:56.000000 18318 torch/distributed/elastic/multiprocessing/api.py:882] failed (exitcode: 1)
{AT.replace("55.9", "57.9")} of another moment
"""


def test_an_agent_that_outlives_the_store_of_the_others_prints_no_traceback(tmp_path):
    torchrun = tmp_path / "torchrun"
    torchrun.write_text("#!/bin/sh\ncat last-words >&2; exit 3\n")
    torchrun.chmod(0o755)
    (tmp_path / "last-words").write_text(LAST_WORDS)
    start = Start("slurm", ("python", "train.py"), nodes=2)
    env = {"PATH": f"{tmp_path}:/usr/bin:/bin", "RUN": str(tmp_path), "RANKUP_MARK": "m"}
    done = subprocess.run(
        ["bash", "-c", "\n".join(torchrun_agent(start))],
        cwd=tmp_path,
        env=env,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 3
    lines = LAST_WORDS.splitlines()
    assert done.stderr.splitlines() == [*lines[:2], *lines[7:]]
