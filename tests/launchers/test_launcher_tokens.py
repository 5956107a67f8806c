"""A launcher is a pure function: whole token lists."""

from __future__ import annotations

import pytest

from rankup.errors import RankupError
from rankup.launchers.base import launcher_named
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
            spec(nproc_per_node=4, numa_binding="node"),
            [
                *("--nnodes=1", "--nproc_per_node=4", "--max_restarts=0", "--numa_binding=node"),
                *("--standalone", "--local_addr=127.0.0.1"),
            ],
            id="next to the GPUs",
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
