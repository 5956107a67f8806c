"""Hydra, the mpiexec of MPICH and Intel MPI."""

from __future__ import annotations

from collections.abc import Mapping

from rankup.world.mpi import world_of
from rankup.world.world import Variables, World


def detect(env: Mapping[str, str]) -> World | None:
    # PMI_RANK alone may come from srun --mpi=pmi2.
    if not env.get("PMI_RANK") or not env.get("MPI_LOCALRANKID"):
        return None
    read = Variables(env)
    rank, world_size = read.number("rank", "PMI_RANK"), read.number("world_size", "PMI_SIZE")
    local_rank = read.number("local_rank", "MPI_LOCALRANKID")
    local_world_size = read.number("local_world_size", "MPI_LOCALNRANKS")
    return world_of("hydra", read, rank, world_size, local_rank, local_world_size)
