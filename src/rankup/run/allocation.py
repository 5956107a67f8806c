"""What a scheduler has given us, read from the environment of a job's shell."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from rankup.core.endpoint import Endpoint
from rankup.errors import RankupError
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
