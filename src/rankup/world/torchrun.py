"""torchrun (TorchElastic): its agents give every worker all values."""

from __future__ import annotations

from collections.abc import Mapping

from rankup.world.world import Variables, World, detect_job


def detect(env: Mapping[str, str]) -> World | None:
    if not env.get("TORCHELASTIC_RUN_ID"):
        return None
    read = Variables(env)
    around = detect_job(env)
    rank, world_size = read.number("rank", "RANK"), read.number("world_size", "WORLD_SIZE")
    local_rank = read.number("local_rank", "LOCAL_RANK")
    local_world_size = read.number("local_world_size", "LOCAL_WORLD_SIZE")
    node_rank = read.number("node_rank", "GROUP_RANK")
    num_nodes = read.number("num_nodes", "GROUP_WORLD_SIZE")
    read.check_below("node_rank", node_rank, "num_nodes", num_nodes)
    restart = around.restart + read.number("restart", "TORCHELASTIC_RESTART_COUNT", default=0)
    sources = {**around.sources, **read.sources}
    if "restart" in around.sources and "restart" in read.sources:
        sources["restart"] = f"{around.sources['restart']} + {read.sources['restart']}"
    # No hosts: agents may be numbered in the order of their arrival, which is not the scheduler's.
    sources.pop("hosts", None)
    return World(
        rank, local_rank, world_size, local_world_size, node_rank, num_nodes, (),
        "torchrun", around.id, restart, sources,
    )  # fmt: skip
