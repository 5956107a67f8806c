"""``World``: who this process is among all the processes of its run."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from rankup.core.registry import load


@dataclass(frozen=True)
class World:
    """Rank, sizes, nodes and job of one process. Ranks count from zero and are below their sizes.

    ``hosts`` are the names of the nodes in the order of their node ranks, () where the environment does not
    tell. ``launcher`` is who formed the ranks: torchrun, openmpi, pals, mvapich, hydra, srun, pbsdsh (an
    agent that knows its node alone), env (somebody set RANK and its like) or none (a single process).
    ``job_id`` is the scheduler's, ``123_4`` for a task of a SLURM array. ``restart`` counts how often the
    job was requeued plus how often torchrun restarted its workers. ``sources`` says for each field which
    variables it came from.
    """

    rank: int = 0
    local_rank: int = 0
    world_size: int = 1
    local_world_size: int = 1
    node_rank: int = 0
    num_nodes: int = 1
    hosts: tuple[str, ...] = ()
    launcher: str = "none"
    job_id: str | None = None
    restart: int = 0
    sources: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def detect(cls, env: Mapping[str, str] = os.environ) -> World:
        """Who the process with the environment ``env`` is.

        Reads ``env`` alone, and on PBS the file that PBS_NODEFILE names. Raises ``RankupError`` where
        variables contradict each other, naming them with their values.
        """
        # By its name: it imports World.
        detect: Callable[[Mapping[str, str]], World] = load("rankup.world.detection:detect")  # type: ignore[assignment]
        return detect(env)
