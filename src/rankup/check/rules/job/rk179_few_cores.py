"""Ranks that share the one core that a job gets by default."""

from __future__ import annotations

from collections.abc import Iterator

from rankup.check.facts.job.job import Job
from rankup.check.rule import Match, Rule
from rankup.findings.finding import Confidence, Severity

#: Directives that say how many cores a task, a GPU or a node gets.
_CORES = ("cpus-per-task", "cpus-per-gpu", "mincpus", "cores-per-socket", "exclusive", "ntasks-per-core")


def find(job: Job) -> Iterator[Match]:
    request = job.request
    if not job.complete or request.heterogeneous or not request.asks_for_gpus:
        return
    if request.scheduler == "slurm":
        asked, cores = any(name in request.by_name for name in _CORES), request.tasks_per_node
    else:
        chunk = request.one_chunk
        asked = chunk is None or request.exclusive or "ncpus" in chunk.resources
        cores = (request.nodes if request.packed else None) or 1
    if asked or not cores or request.scheduler not in ("slurm", "pbs"):
        return
    for launch in job.launches:
        step, ranks = launch.step, launch.start.processes_per_node
        if step is not None and step.options.keys() & {*_CORES, "ntasks", "nodes", "ntasks-per-node"}:
            continue
        if ranks is not None and ranks > 1 and ranks >= cores:
            yield Match(
                job.document,
                launch.span,
                f"{ranks} ranks on each node get {cores} core{'s' * (cores > 1)}, and the job asks for no more.",
            )
            return


RULE = Rule(
    code="RK179",
    name="few-cores",
    severity=Severity.NOTE,
    confidence=Confidence.LIKELY,
    what="A job with several ranks on a node does not say how many cores it needs.",
    why="The default is one core for each task (SLURM) or chunk (PBS), unless the site gives cores with each GPU: the "
    "ranks and all workers of their data loaders share it.",
    fix="Ask for cores: --cpus-per-task (of all ranks that a task starts), --cpus-per-gpu, or ncpus in the chunk.",
    find=find,
    fires=(
        """#!/bin/bash
#SBATCH --nodes=1 --gres=gpu:4
torchrun --standalone --nproc_per_node=4 train.py
""",
        """#!/bin/bash
#PBS -l select=1:ngpus=2
cd "$PBS_O_WORKDIR"
torchrun --standalone --nproc_per_node=2 train.py
""",
    ),
    silent=(
        """#!/bin/bash
#SBATCH --nodes=1 --gres=gpu:4 --cpus-per-gpu=8
torchrun --standalone --nproc_per_node=4 train.py
""",
        """#!/bin/bash
#SBATCH --nodes=1 --gres=gpu:4 --ntasks-per-node=32
torchrun --standalone --nproc_per_node=4 train.py
""",
    ),
)
