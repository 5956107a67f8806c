"""PBS (OpenPBS, PBS Pro, Torque): the job in which a process runs, and the agents that ``pbsdsh`` starts.

PBS forms no ranks. Its nodefile has one line per MPI process, so it may list a host several times.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from rankup.world.world import SchedulerJob, Variables, World


def job(env: Mapping[str, str]) -> SchedulerJob | None:
    """The job that PBS_JOBID names, or None. PBS does not count reruns, so ``restart`` is 0."""
    if not env.get("PBS_JOBID"):
        return None
    hosts = _nodefile(env.get("PBS_NODEFILE", ""))
    sources = {"job_id": "PBS_JOBID", **({"hosts": "PBS_NODEFILE"} if hosts else {})}
    return SchedulerJob(env["PBS_JOBID"], 0, hosts, None, sources)


def detect(env: Mapping[str, str]) -> World | None:
    """An agent of pbsdsh. It knows only its node, because it gets no variable that the batch script exports.

    Its ranks are those of a single process, and ``num_nodes`` is a lower bound unless Torque sets it.
    """
    read = Variables(env)
    # The batch script has PBS_NODENUM too, but also a nodefile.
    if not read.first("PBS_JOBID") or not read.first("PBS_NODENUM") or read.first("PBS_NODEFILE"):
        return None
    node_rank = read.number("node_rank", "PBS_NODENUM")
    num_nodes = read.number("num_nodes", "PBS_NUM_NODES", default=node_rank + 1)
    read.sources.setdefault("num_nodes", "PBS_NODENUM")
    read.check_below("node_rank", node_rank, "num_nodes", num_nodes)
    sources = {**read.sources, "job_id": "PBS_JOBID"}
    return World(
        node_rank=node_rank, num_nodes=num_nodes, launcher="pbsdsh", job_id=env["PBS_JOBID"], sources=sources
    )


def _nodefile(path: str) -> tuple[str, ...]:
    """The hosts in the order of their first line, so that the first is the head; () if the file cannot be read here."""
    try:
        lines = Path(path).read_text(encoding="utf-8", errors="replace").split() if path else []
    except OSError:
        return ()
    return tuple(dict.fromkeys(lines))
