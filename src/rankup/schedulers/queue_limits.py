"""What no queue ever grants: a job that waits for ever, told before it is submitted.

Schedulers accept such jobs: SLURM unless it is configured to enforce its partitions' limits, and PBS more nodes than
it has.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from rankup.core.units import clock, size
from rankup.findings.finding import Finding, Severity
from rankup.spec.jobspec import JobSpec

CODE = "over-queue-limit"


@dataclass(frozen=True)
class NodeKind:
    """Equal nodes. Sizes are per node, ``memory`` in MiB; 0 if unknown, and then everything fits."""

    nodes: int
    cpus: int = 0
    memory: int = 0
    gpus: int | None = None


@dataclass(frozen=True)
class QueueLimits:
    """What a queue grants to one job, at most. ``name`` is for messages; ``time`` in seconds, None if unlimited."""

    name: str
    kinds: tuple[NodeKind, ...]
    time: int | None = None
    nodes: int = 0  # 0: all that there are


def never_granted(
    spec: JobSpec, queues: Sequence[QueueLimits], scheduler: str, *, cpus: int, spread: bool = True
) -> list[Finding]:
    """Why a job can never start in any of ``queues``, those of the first; nothing if it can in one of them.

    ``cpus`` are the cores that the job requests on each node. ``spread``: each of its nodes is another host.
    """
    reasons = [list(_excesses(spec, queue, scheduler, cpus, spread)) for queue in queues]
    return reasons[0] if reasons and all(reasons) else []


def _excesses(
    spec: JobSpec, queue: QueueLimits, scheduler: str, cpus: int, spread: bool
) -> Iterator[Finding]:
    if queue.time is not None and spec.time and spec.time > queue.time:
        yield _finding(
            f"the job has --time {clock(spec.time)}, and {queue.name} allows {clock(queue.time)}",
            scheduler,
            "--time",
            f"--time {clock(queue.time)}: a run that saves then continues in another job (--max-requeues); or another "
            "--queue",
        )
    there = sum(kind.nodes for kind in queue.kinds)
    most = min(queue.nodes or there, there)
    if spread and there and spec.nodes > most:
        yield _finding(
            f"the job needs {spec.nodes} nodes, and {queue.name} "
            + (f"grants at most {most} to a job" if most < there else f"has {there}"),
            scheduler,
            "--nodes",
            "fewer nodes, or another --queue",
        )
        return
    fitting = sum(kind.nodes for kind in queue.kinds if _fits(spec, kind, cpus))
    if there and fitting < (spec.nodes if spread else 1):
        yield _finding(
            f"the job needs {_sizes(spec, cpus)} on each of its nodes ({spec.nodes}), and {queue.name} has "
            f"{fitting or 'no'} {'node' if fitting < 2 else 'nodes'} with that (of {there})",
            scheduler,
            "--cpus-per-task, --gpus-per-node, --mem",
            "ask for less on each node, or another --queue",
        )


def _fits(spec: JobSpec, kind: NodeKind, cpus: int) -> bool:
    return (
        (not kind.cpus or cpus <= kind.cpus)
        and (not kind.memory or (spec.mem or 0) <= kind.memory)
        and (kind.gpus is None or spec.gpus_per_node <= kind.gpus)
    )


def _sizes(spec: JobSpec, cpus: int) -> str:
    parts = [f"{cpus} cores" if cpus != 1 else "1 core"]
    parts += [f"{spec.gpus_per_node} GPUs"] if spec.gpus_per_node else []
    parts += [f"{size(spec.mem)} of memory"] if spec.mem else []
    return ", ".join(parts)


def _finding(message: str, scheduler: str, place: str, fix: str) -> Finding:
    return Finding(
        CODE,
        Severity.ERROR,
        message,
        place=place,
        why=f"{scheduler} says so; the job would wait for ever, or be refused",
        fix=f"{fix}; --ignore {CODE} if you may exceed this limit",
    )
