"""RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT set by hand, or by a launcher that is not recognised otherwise."""

from __future__ import annotations

from collections.abc import Mapping

from rankup.errors import RankupError
from rankup.world.mpi import world_of
from rankup.world.world import Variables, World

_TRIGGERS = ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")
_LOOPBACK = ("localhost", "127.0.0.1", "::1")


def detect(env: Mapping[str, str]) -> World | None:
    if not all(env.get(name) for name in _TRIGGERS):
        return None
    read = Variables(env)
    rank, world_size = read.number("rank", "RANK"), read.number("world_size", "WORLD_SIZE")
    # On one node the local numbers are the global ones.
    if world_size == 1 or env["MASTER_ADDR"] in _LOOPBACK:
        read.sources.update(local_rank="RANK", local_world_size="WORLD_SIZE")
        local_rank = read.number("local_rank", "LOCAL_RANK", default=rank)
        local_world_size = read.number("local_world_size", "LOCAL_WORLD_SIZE", default=world_size)
    else:
        local_rank = _local(read, "local_rank", "LOCAL_RANK")
        local_world_size = _local(read, "local_world_size", "LOCAL_WORLD_SIZE")
    named = read.first("NODE_RANK", "GROUP_RANK")
    node_rank = read.number("node_rank", named) if named else None
    num_nodes = read.number("num_nodes", "NNODES", "GROUP_WORLD_SIZE", default=0)
    return world_of(
        "env", read, rank, world_size, local_rank, local_world_size, node_rank=node_rank, num_nodes=num_nodes
    )


def _local(read: Variables, field: str, name: str) -> int:
    """Required with several nodes, because a wrong guess would select a wrong device."""
    if not read.first(name):
        raise RankupError(
            "incomplete-environment",
            f"{name} is not set, so this process does not know which device of its node to use",
            context=", ".join(f"{trigger}={read.env[trigger]}" for trigger in _TRIGGERS),
            hint="export LOCAL_RANK and LOCAL_WORLD_SIZE too, or start the processes with torchrun",
        )
    return read.number(field, name)
