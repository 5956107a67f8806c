"""What a scheduler has given us, read from the environment of a job's shell, and what of it a job takes."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from rankup.core.endpoint import Endpoint
from rankup.errors import RankupError
from rankup.resolve.resolved import FLAG, Resolved
from rankup.world import World


@dataclass(frozen=True)
class Allocation:
    """The nodes of a job, head first. ``inside`` says whether this process runs on one of them.

    ``cpus`` is what the smallest node has for us, where the scheduler says so; ``lines`` are the hosts' first lines
    in PBS's node file. ``of`` is the number of nodes of the whole job, if ``hosts`` are a part of them, else 0.
    """

    scheduler: str
    job_id: str
    hosts: tuple[str, ...]
    inside: bool
    cpus: int | None = None
    lines: tuple[int, ...] = ()
    of: int = 0

    def first(self, nodes: int) -> Allocation:
        """The first ``nodes`` of it."""
        if nodes == len(self.hosts):
            return self
        return replace(self, hosts=self.hosts[:nodes], lines=self.lines[:nodes], of=len(self.hosts))

    def __str__(self) -> str:
        """How many of the job's nodes these are."""
        return f"the first {len(self.hosts)} of {self.of}" if self.of else f"{len(self.hosts)}"

    def taken_by(self, job: Resolved) -> Resolved:
        """``job`` on all these nodes."""
        spec = job.spec.model_copy(update={"nodes": len(self.hosts), "launcher": "torchrun"})
        origin = job.origin["nodes"] if "nodes" in job.asked else "allocation"
        return replace(job, spec=spec, origin={**job.origin, "nodes": origin})

    @property
    def needs_fan_out(self) -> bool:
        return len(self.hosts) > 1 or not self.inside

    def endpoint(self) -> str:
        """``HOST:0`` of the head, which has to be reached from all other nodes; node 0 chooses the port.

        On the head itself its address, since its name may resolve to 127.0.1.1 there; elsewhere its name.
        """
        from rankup.world.address import route_to

        here = self.inside and len(self.hosts) > 1
        host = route_to(self.hosts[1]) if here else self.hosts[0]
        return str(Endpoint(host, 0))


def allocation_of(job: Resolved) -> Allocation | None:
    """The nodes of the allocation to run on; None to stay on this machine, or with machines started by hand.

    A job that asks for fewer nodes than there are gets the first ones.
    """
    spec, asked = job.spec, "nodes" in job.asked
    if asked and (spec.rdzv_endpoint or (spec.nodes == 1 and job.origin["nodes"] == FLAG)):
        return None
    allocation = detect_allocation(os.environ)
    if allocation is None and spec.nodes > 1:
        raise RankupError(
            "no-allocation",
            f"the job asks for {spec.nodes} nodes, and this is not the shell of an allocation",
            context=job.origin["nodes"],
            hint="--nnodes 1 runs on this machine alone; rankup submit takes it to a cluster",
        )
    if allocation is None:
        return None
    if asked and spec.nodes > len(allocation.hosts):
        raise RankupError(
            "other-allocation",
            f"the job asks for {spec.nodes} nodes, and this allocation has {len(allocation.hosts)}",
            context=job.origin["nodes"],
            hint="a larger allocation, or fewer nodes; --nnodes 1 stays on this machine",
        )
    if asked:
        allocation = allocation.first(spec.nodes)
    return allocation if allocation.needs_fan_out else None


def detect_allocation(
    env: Mapping[str, str], read: Callable[[str], str] = lambda path: Path(path).read_text()
) -> Allocation | None:
    """The allocation whose shell we are in, or None outside of any; an error inside one of many tasks."""
    refuse_one_of_many(env)
    if env.get("SLURM_JOB_ID") and env.get("SLURM_JOB_NODELIST"):
        from rankup.core.hostlist import expand, expand_counts

        cpus = expand_counts(env.get("SLURM_JOB_CPUS_PER_NODE", ""))
        return Allocation(
            scheduler="slurm",
            job_id=env["SLURM_JOB_ID"],
            hosts=tuple(expand(env["SLURM_JOB_NODELIST"])),
            inside="SLURMD_NODENAME" in env,  # salloc's shell may be on a login node
            cpus=min(cpus) if cpus else None,
        )
    if env.get("PBS_JOBID") and env.get("PBS_NODEFILE"):
        lines = [line.strip() for line in read(env["PBS_NODEFILE"]).splitlines() if line.strip()]
        hosts = tuple(dict.fromkeys(lines))  # in the order of the file, so that the first one is the head
        return Allocation(
            scheduler="pbs",
            job_id=env["PBS_JOBID"],
            hosts=hosts,
            inside=True,
            lines=tuple(lines.index(host) for host in hosts),
        )
    return None


def refuse_one_of_many(env: Mapping[str, str]) -> None:
    """An error where a launcher has started several of us: each would start all processes once more."""
    world = World.detect(env)
    if world.world_size > 1:
        raise RankupError(
            "one-of-many",
            f"this is rank {world.rank} of {world.world_size} already (launcher: {world.launcher}), "
            "and rankup run starts all processes itself",
            context=f"as told by {world.sources.get('world_size', 'the environment')}",
            hint="leave out srun, mpirun or torchrun: rankup run reaches every node of the allocation by itself; "
            "or leave out rankup run: srun … python script.py. --nnodes 1 runs here and only here",
        )
