"""``Allocation``: what a job has got from its scheduler: nodes with their CPUs and GPUs, and what it asked for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any


@dataclass(frozen=True)
class Allocation:
    """The nodes of a job, and what its directives ask for. What is None was not asked for.

    ``cpus`` are those of this job on each node; ``gpus`` likewise. The sizes that SLURM hands on to ``srun`` by
    variables (``ntasks``, ``ntasks_per_node``, ``cpus_per_task``, ``gpus_per_task``, …) are the request's own.
    """

    scheduler: str = "slurm"  # slurm, pbs, torque
    hosts: tuple[str, ...] = ("node1",)
    cpus: tuple[int, ...] = (1,)
    gpus: tuple[int, ...] = (0,)
    ntasks: int | None = None
    ntasks_per_node: int | None = None
    cpus_per_task: int | None = None
    gpus_per_task: int | None = None
    gpus_per_node: str | None = None  # as it was written
    total_gpus: str | None = None  # of --gpus
    ntasks_per_gpu: int | None = None
    # Variables by which sbatch tells srun of directives.
    handed_on: Mapping[str, str] = field(default_factory=dict)
    mpiprocs: tuple[int, ...] = (1,)  # PBS: lines of the node file for each host
    ompthreads: int | None = None
    exclusive: bool = False
    no_kill: bool = False  # SLURM: it goes on after it has lost a node
    export_none: bool = False  # sbatch --export=NONE: srun hands on nothing
    array_task: str | None = None
    array: tuple[int, int, int, int] = (
        1,
        0,
        0,
        1,
    )  # SLURM: number of its tasks, the first, the last, the step
    partition: str = "main"
    job_name: str = "job"
    job_id: str = "4711"
    addresses: Mapping[str, str] = field(default_factory=dict)  # of hosts; those that are missing get one

    @property
    def num_nodes(self) -> int:
        return len(self.hosts)

    def address(self, host: str) -> str:
        known = self.addresses.get(host)
        if known is None and host in self.hosts:
            number = self.hosts.index(host) + 11
            known = f"10.0.{number // 250}.{number % 250 + 1}"
        return known or "10.0.255.1"

    def tasks_per_node(self) -> tuple[int, ...]:
        """SLURM's SLURM_TASKS_PER_NODE of the batch shell: the tasks that a plain ``srun`` would start."""
        if self.ntasks is not None:
            return spread(self.ntasks, self.num_nodes, self.ntasks_per_node, self.capacities())
        return (self.ntasks_per_node or 1,) * self.num_nodes

    def capacities(self) -> tuple[int, ...]:
        """How many of the job's tasks each node has CPUs for."""
        return tuple(cpus // (self.cpus_per_task or 1) for cpus in self.cpus)

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Allocation:
        lists = {
            name: tuple(values[name])
            for name in ("hosts", "cpus", "gpus", "mpiprocs", "array")
            if name in values
        }
        return cls(**{**values, **lists})


def spread(tasks: int, nodes: int, per_node: int | None, capacities: tuple[int, ...]) -> tuple[int, ...]:
    """How many of ``tasks`` each node gets: SLURM goes round the nodes as long as they have CPUs left.

    Tasks that no CPU is left for (``--overcommit``) go round all nodes again.
    """
    counts = [0] * nodes
    limits = [min(room, per_node) if per_node else room for room in capacities]
    left = tasks
    while left:
        free = [index for index in range(nodes) if counts[index] < limits[index]] or range(nodes)
        for index in free:
            if left:
                counts[index] += 1
                left -= 1
    return tuple(counts)


def counts_text(counts: tuple[int, ...]) -> str:
    """SLURM's short form of counts: ``(2, 2, 1)`` → ``2(x2),1``."""
    runs: list[list[int]] = []
    for count in counts:
        if runs and runs[-1][0] == count:
            runs[-1][1] += 1
        else:
            runs.append([count, 1])
    return ",".join(f"{count}(x{times})" if times > 1 else str(count) for count, times in runs)
