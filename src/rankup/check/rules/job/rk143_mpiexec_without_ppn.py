"""mpiexec that starts all agents on the first node."""

from __future__ import annotations

from collections.abc import Iterator

from rankup.check.document import Span
from rankup.check.facts.job import Job
from rankup.check.rule import Edit, Match, Rule, Safety
from rankup.findings.finding import Confidence, Severity

_PLACES = {"ppn", "hostfile", "hosts", "map-by", "rankfile", "rf", "app"}


def find(job: Job) -> Iterator[Match]:
    request = job.request
    if job.scheduler not in ("pbs", "torque") or not request.many_nodes or (request.lines_per_node or 1) < 2:
        return
    seen: set[Span] = set()
    for launch in job.launches:
        step = launch.step
        if (
            step is None
            or step.kind not in ("mpiexec", "mpirun")
            or not launch.is_torchrun
            or step.span in seen
        ):
            continue
        tasks = step.options.get("np")
        if tasks is None or job.number(tasks) != request.nodes or step.options.keys() & _PLACES:
            continue
        seen.add(step.span)
        end = tasks.span.end
        written = job.document[tasks.span] == (tasks.known or "?") and step.kind == "mpiexec"
        yield Match(
            job.document,
            step.span,
            f"{step.kind} may start all {request.nodes} agents on the first node, which has {request.lines_per_node} "
            "places.",
            (Edit(Span(end, end), " --ppn 1"),) if written else (),
        )


RULE = Rule(
    code="RK143",
    name="mpiexec-without-ppn",
    severity=Severity.WARNING,
    confidence=Confidence.LIKELY,
    what="The agents of several nodes are started by mpiexec, which is not told to start one per node.",
    why="It fills the places of the first node (mpiprocs, ppn) before it uses the second.",
    fix="Add --ppn 1 (PALS, MPICH) or --map-by ppr:1:node (Open MPI), or ask for mpiprocs=1.",
    find=find,
    safety=Safety.UNSAFE,
    fires=(
        """#!/bin/bash
#PBS -l select=2:ncpus=32:ngpus=4:mpiprocs=4
cd "$PBS_O_WORKDIR"
head=$(hostname)
mpiexec -n 2 torchrun --nnodes=2 --nproc_per_node=4 --rdzv_backend=c10d --rdzv_endpoint=$head:29500 train.py
""",
        """#!/bin/bash
#PBS -l nodes=2:ppn=8:gpus=4
cd $PBS_O_WORKDIR
head=$(hostname)
mpiexec -np 2 torchrun --nnodes=2 --nproc_per_node=4 --rdzv_backend=c10d --rdzv_endpoint=$head:29500 train.py
""",
    ),
    silent=(
        """#!/bin/bash
#PBS -l select=2:ncpus=32:ngpus=4:mpiprocs=4
cd "$PBS_O_WORKDIR"
head=$(hostname)
mpiexec -n 2 --ppn 1 torchrun --nnodes=2 --nproc_per_node=4 --rdzv_backend=c10d --rdzv_endpoint=$head:29500 train.py
""",
        """#!/bin/bash
#PBS -l select=2:ncpus=32:ngpus=4:mpiprocs=1
cd "$PBS_O_WORKDIR"
head=$(hostname)
mpiexec -n 2 torchrun --nnodes=2 --nproc_per_node=4 --rdzv_backend=c10d --rdzv_endpoint=$head:29500 train.py
""",
    ),
)
