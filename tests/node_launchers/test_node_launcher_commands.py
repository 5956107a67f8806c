"""A fan-out is a pure function: whole token lists."""

from __future__ import annotations

from pathlib import Path

import pytest

from rankup.node_launchers.base import NODE_RANK, AgentLaunch, fanout_named

PLAN = AgentLaunch(
    hosts=("n1", "n2"),
    agent=("/py", "run", "--node-rank", NODE_RANK, "--", "train.py", "a b", "$HOME"),
    folder=Path("/runs/x y/agents"),
    lines=(0, 4),
    cpus=8,
)


@pytest.mark.parametrize(
    ("name", "commands"),
    [
        (
            "srun",
            [
                [
                    *("srun", "--nodes=2", "--ntasks=2", "--ntasks-per-node=1", "--cpus-per-task=8"),
                    *("--cpu-bind=none", "--kill-on-bad-exit=1", "bash", "-c"),
                    """exec /py run --node-rank "$SLURM_NODEID" -- train.py 'a b' '$HOME'""",
                ]
            ],
        ),
        (
            "pbsdsh",
            [
                ["pbsdsh", "-n", "0", "--", "bash", "/runs/x y/agents/agent-0.sh"],
                ["pbsdsh", "-n", "4", "--", "bash", "/runs/x y/agents/agent-1.sh"],
            ],
        ),
        (
            "mpiexec",
            [
                [
                    *("mpiexec", "--hostfile", "/runs/x y/agents/hosts", "-np", "2"),
                    *("--map-by", "ppr:1:node", "--bind-to", "none", "bash", "-c"),
                    """exec bash '/runs/x y/agents'/agent-"$OMPI_COMM_WORLD_RANK".sh""",
                ]
            ],
        ),
        (
            "pals",
            [
                [
                    *("mpiexec", "-n", "2", "--ppn", "1", "--hostfile", "/runs/x y/agents/hosts"),
                    *("--cpu-bind", "none", "bash", "-c"),
                    """exec bash '/runs/x y/agents'/agent-"$PALS_RANKID".sh""",
                ]
            ],
        ),
    ],
)
def test_commands(name, commands):
    assert fanout_named(name)(PLAN) == commands


def test_srun_takes_what_it_gets_where_the_cores_are_not_known():
    (command,) = fanout_named("srun")(AgentLaunch(("n1",), ("x",), Path("/f")))
    assert not [token for token in command if token.startswith("--cpus-per-task")]
