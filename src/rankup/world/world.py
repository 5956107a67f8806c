"""``World``: which process this is among all processes of its run."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from rankup.core.registry import load


@dataclass(frozen=True)
class World:
    """Rank, sizes, nodes and job of one process. Ranks count from zero and are below their sizes.

    ``hosts`` are the names of the nodes in the order of their node ranks, or () if the environment does not
    tell them. ``launcher`` formed the ranks: torchrun, openmpi, pals, mvapich, hydra, srun, pbsdsh (an agent
    that knows only its node), env (RANK and the like were set by hand) or none (a single process).
    ``job_id`` is the scheduler's, ``123_4`` for a task of a SLURM array. ``restart`` counts how often the
    job was requeued plus how often torchrun restarted its workers. ``sources`` names for each field the
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

    @property
    def is_main(self) -> bool:
        """Whether this is rank 0: the one that prints and writes."""
        return self.rank == 0

    @classmethod
    def detect(cls, env: Mapping[str, str] = os.environ) -> World:
        """The World of the process with the environment ``env``.

        Reads only ``env``, and on PBS the file that PBS_NODEFILE names. Raises ``RankupError`` if variables
        contradict each other, and names them with their values.
        """
        # Loaded by name, because it imports World.
        detect: Callable[[Mapping[str, str]], World] = load("rankup.world.detection:detect")  # type: ignore[assignment]
        return detect(env)
