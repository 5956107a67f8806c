"""Finds the node of a process and the number of nodes, for launchers that only number processes."""

from __future__ import annotations

from rankup.errors import RankupError
from rankup.world.world import SchedulerJob, Variables, World, detect_job


def world_of(
    launcher: str, read: Variables, rank: int, world_size: int, local_rank: int, local_world_size: int, *,
    node_rank: int | None = None, num_nodes: int = 0, node_name: str | None = None,
) -> World:  # fmt: skip
    """The World of a process whose ranks are known.

    The node comes from the launcher (``num_nodes`` 0 and None mean unknown), else from the scheduler's list of hosts,
    else from arithmetic.
    """
    read.check_below("rank", rank, "world_size", world_size)
    read.check_below("local_rank", local_rank, "local_world_size", local_world_size)
    around = detect_job(read.env)
    num_nodes = num_nodes or _count_nodes(read, world_size, local_world_size, node_rank, around)
    # If the job has more or fewer hosts than this world has nodes, it is unknown which of them belong to it.
    hosts = around.hosts if len(around.hosts) == num_nodes else ()
    if node_rank is None:
        node_rank = 0
        if num_nodes > 1:
            own_name = (node_name or around.node_name or "").partition(".")[0]
            named = [index for index, host in enumerate(hosts) if host.partition(".")[0] == own_name]
            if len(named) == 1:
                node_rank = named[0]
                read.sources["node_rank"] = around.sources["hosts"]
            else:
                node_rank = _node_of(read, rank, world_size, local_rank, local_world_size, num_nodes)
    read.check_below("node_rank", node_rank, "num_nodes", num_nodes)
    sources = {**around.sources, **read.sources}
    if not hosts:
        sources.pop("hosts", None)
    return World(
        rank, local_rank, world_size, local_world_size, node_rank, num_nodes, hosts,
        launcher, around.id, around.restart, sources,
    )  # fmt: skip


def _count_nodes(
    read: Variables, world_size: int, local_world_size: int, node_rank: int | None, job: SchedulerJob
) -> int:
    """The number of nodes if all hold as many processes as this one, at most the hosts of the job."""
    even, rest = divmod(world_size, local_world_size)
    if rest or (job.hosts and even > len(job.hosts)):
        if not job.hosts:
            raise _uneven(read, world_size, local_world_size)
        read.sources["num_nodes"] = job.sources["hosts"]
        return len(job.hosts)
    read.sources["num_nodes"] = _both(read, "world_size", "local_world_size")
    return max(even, (node_rank or 0) + 1)


def _node_of(
    read: Variables, rank: int, world_size: int, local_rank: int, local_world_size: int, num_nodes: int
) -> int:
    """The node by arithmetic: ranks fill node after node (the usual order), or go round the nodes."""
    if world_size == num_nodes * local_world_size:
        read.sources["node_rank"] = _both(read, "rank", "local_world_size")
        if rank % local_world_size == local_rank:
            return rank // local_world_size
        if rank // num_nodes == local_rank:
            return rank % num_nodes
    raise _uneven(read, world_size, local_world_size)


def _both(read: Variables, field: str, other: str) -> str:
    return f"{read.sources[field]}, {read.sources[other]}"


def _uneven(read: Variables, world_size: int, local_world_size: int) -> RankupError:
    return RankupError(
        "unknown-node-rank",
        "the environment does not tell on which node this process runs",
        context=f"{read.sources['world_size']} is {world_size}, "
        f"{read.sources['local_world_size']} is {local_world_size}",
        hint="start the same number of processes on every node (Open MPI: --map-by ppr:N:node), or use torchrun",
    )
