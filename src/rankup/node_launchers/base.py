"""What a node launcher is asked to start."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass

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
    """One agent on each of ``nodes``.

    ``agent`` are lines of bash in which NODE_RANK is the node's; ``cpus`` are a node's, where known. ``given`` are the
    variables that the user has set for all nodes. ``whole_job``: nothing but these agents runs in the scheduler's job.
    ``hosts`` are the nodes to take of a job that has more; () takes all. ``options`` are shell code, for srun alone.
    """

    agent: tuple[str, ...]
    nodes: int = 1
    cpus: int | None = None
    given: Collection[str] = ()
    whole_job: bool = True
    hosts: tuple[str, ...] = ()
    options: tuple[str, ...] = ()


@dataclass(frozen=True)
class AgentsScript:
    """Bash that starts the agents in the background, and sets ``workers`` to the process that ends with them.

    ``start`` are the commands, ``own`` the functions that this job alone has, ``fixed`` those that every job has that
    is started in the same way, ``end`` those that tell the agents to end.
    """

    start: tuple[str, ...]
    end: tuple[str, ...]
    own: tuple[str, ...] = ()
    fixed: tuple[str, ...] = ()


NodeLauncher = Callable[[Agents], AgentsScript]
