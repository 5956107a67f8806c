"""What a node launcher is asked to start."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from pathlib import Path
from typing import cast

from rankup.core.registry import lookup
from rankup.node_launchers import FANOUTS

# Stands for the node's rank among the tokens of an agent's command.
NODE_RANK = "{node_rank}"
# What a node has of its own, or the batch shell alone: not to be brought there, unless the user has given it for all. A
# site's hook may say on each node which GPUs are the job's, by names that no other node knows.
OWN = (
    *("PBS_NODENUM", "PBS_TASKNUM", "PBS_MOMPORT", "PBS_JOBCOOKIE", "PBS_JOBDIR"),
    *("CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER", "ROCR_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES"),
    *("GPU_DEVICE_ORDINAL", "ZE_AFFINITY_MASK"),
    *("HOSTNAME", "TMPDIR", "PWD", "OLDPWD", "SHLVL"),
)


@dataclass(frozen=True)
class Agents:
    """One agent on each of ``nodes``, started by a job's script.

    ``agent`` are lines of bash in which NODE_RANK is the node's; ``cpus`` are a node's, where known. ``given`` are the
    variables that the user has set for all nodes.
    """

    agent: tuple[str, ...]
    nodes: int = 1
    cpus: int | None = None
    given: Collection[str] = ()


@dataclass(frozen=True)
class AgentsScript:
    """Bash that starts the agents in the background, and sets ``workers`` to the process that ends with them.

    ``start`` are the commands, ``own`` the functions that this job alone has, ``fixed`` those that every job has that
    is started in the same way.
    """

    start: tuple[str, ...]
    own: tuple[str, ...] = ()
    fixed: tuple[str, ...] = ()


NodeLauncher = Callable[[Agents], AgentsScript]


@dataclass(frozen=True)
class AgentLaunch:
    """One agent on each of ``hosts``, node rank = position.

    ``agent`` is its command, with ``NODE_RANK`` where that goes; ``lines`` are the hosts' first lines in PBS's node
    file; ``cpus`` what each node can give to its agent, where known. ``folder`` holds ``agent-I.sh`` for node I
    (and ``hosts``, one name a line) for fan-outs that do not carry our environment: see ``script_of``.
    """

    hosts: tuple[str, ...]
    agent: tuple[str, ...]
    folder: Path
    lines: tuple[int, ...] = ()
    cpus: int | None = None

    def script_of(self, node: int) -> Path:
        return self.folder / f"agent-{node}.sh"

    @property
    def hostfile(self) -> Path:
        return self.folder / "hosts"


FanOut = Callable[[AgentLaunch], list[list[str]]]


def fanout_named(name: str) -> FanOut:
    return cast(FanOut, lookup("fan-out", name, FANOUTS))
