"""PALS, the mpiexec of HPE Cray machines (Cray MPICH)."""

from __future__ import annotations

from collections.abc import Mapping

from rankup.world.mpi import world_of
from rankup.world.world import Variables, World


def detect(env: Mapping[str, str]) -> World | None:
    if not env.get("PALS_RANKID"):
        return None
    read = Variables(env)
    rank = read.number("rank", "PALS_RANKID")
    world_size = read.number("world_size", "PMI_SIZE", "PALS_SIZE")  # older versions have no PALS_SIZE
    local_rank = read.number("local_rank", "PALS_LOCAL_RANKID")
    local_world_size = read.number("local_world_size", "PALS_LOCAL_SIZE")
    node_rank = read.number("node_rank", "PALS_NODEID")
    return world_of("pals", read, rank, world_size, local_rank, local_world_size, node_rank=node_rank)
