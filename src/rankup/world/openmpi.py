"""Open MPI's mpirun.

OMPI_COMM_WORLD_NODE_RANK is not the rank of the node: it is the process's rank on its node.
"""

from __future__ import annotations

from collections.abc import Mapping

from rankup.world.mpi import world_of
from rankup.world.world import Variables, World


def detect(env: Mapping[str, str]) -> World | None:
    if not env.get("OMPI_COMM_WORLD_RANK"):
        return None
    read = Variables(env)
    rank = read.number("rank", "OMPI_COMM_WORLD_RANK")
    world_size = read.number("world_size", "OMPI_COMM_WORLD_SIZE")
    local_rank = read.number("local_rank", "OMPI_COMM_WORLD_LOCAL_RANK")
    local_world_size = read.number("local_world_size", "OMPI_COMM_WORLD_LOCAL_SIZE")
    # Open MPI 4 counts the nodes that have processes; the node of mpirun itself may not be one of them.
    num_nodes = read.number("num_nodes", "OMPI_MCA_orte_num_nodes", default=0)
    host = read.first("PMIX_HOSTNAME")
    return world_of(
        "openmpi", read, rank, world_size, local_rank, local_world_size,
        num_nodes=num_nodes, node_name=env[host] if host else None,
    )  # fmt: skip
