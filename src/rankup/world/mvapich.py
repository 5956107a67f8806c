"""MVAPICH2's mpirun_rsh and mpiexec."""

from __future__ import annotations

from collections.abc import Mapping

from rankup.world.mpi import world_of
from rankup.world.world import Variables, World


def detect(env: Mapping[str, str]) -> World | None:
    if not env.get("MV2_COMM_WORLD_RANK"):
        return None
    read = Variables(env)
    rank = read.number("rank", "MV2_COMM_WORLD_RANK")
    world_size = read.number("world_size", "MV2_COMM_WORLD_SIZE")
    local_rank = read.number("local_rank", "MV2_COMM_WORLD_LOCAL_RANK")
    local_world_size = read.number("local_world_size", "MV2_COMM_WORLD_LOCAL_SIZE")
    return world_of("mvapich", read, rank, world_size, local_rank, local_world_size)
