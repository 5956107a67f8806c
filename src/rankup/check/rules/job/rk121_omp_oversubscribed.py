"""More OpenMP threads on a node than the job has cores there."""

from __future__ import annotations

from collections.abc import Iterator

from rankup.check.facts.job import Job, Launch
from rankup.check.facts.job_questions import nproc
from rankup.check.rule import Match, Rule
from rankup.findings.finding import Confidence, Severity


def find(job: Job) -> Iterator[Match]:
    cores = _cores(job)
    if cores is None:
        return
    seen: set[int] = set()
    for launch in job.launches:
        value = launch.exported("OMP_NUM_THREADS")
        threads, processes = job.number(value), _processes(job, launch)
        if value is None or threads is None or processes is None or threads * processes <= cores:
            continue
        if value.span.start in seen:
            continue
        seen.add(value.span.start)
        yield Match(
            job.document,
            value.span,
            f"{processes} process{'es' * (processes > 1)} with {threads} threads each on {cores} cores per node.",
        )


def _cores(job: Job) -> int | None:
    request = job.request
    if request.exclusive or request.get("mincpus", "threads-per-core", "hint", "cpus-per-gpu") is not None:
        return None
    cpus, tasks = request.cpus_per_task, request.tasks_per_node
    if request.scheduler == "slurm":
        return cpus * tasks if cpus and tasks and request.tasks_given else None
    return cpus if request.scheduler == "pbs" and request.one_chunk is not None else None


def _processes(job: Job, launch: Launch) -> int | None:
    step = launch.step
    if step is not None and step.options.keys() & {"cpus-per-task", "ntasks", "ntasks-per-node", "exclusive"}:
        return None
    if launch.is_torchrun:
        return nproc(job, launch) if step is None or step.tasks_per_node == 1 else None
    if launch.launcher == "python":
        return 1 if step is None else step.tasks_per_node
    return None


RULE = Rule(
    code="RK121",
    name="omp-oversubscribed",
    severity=Severity.WARNING,
    confidence=Confidence.LIKELY,
    what="OMP_NUM_THREADS times the processes of a node is more than the cores that the job asks for.",
    why="The threads of all ranks share the cores and slow each other down.",
    fix="Set OMP_NUM_THREADS to the cores of a node divided by its ranks.",
    find=find,
    fires=(
        """#!/bin/bash
#SBATCH --nodes=1 --ntasks-per-node=1 --cpus-per-task=16 --gres=gpu:4
export OMP_NUM_THREADS=16
torchrun --standalone --nproc_per_node=4 train.py
""",
        """#!/bin/bash
#SBATCH --nodes=2 --ntasks-per-node=4 --cpus-per-task=4 --gres=gpu:4
export OMP_NUM_THREADS=8
srun python train.py
""",
    ),
    silent=(
        """#!/bin/bash
#SBATCH --nodes=1 --ntasks-per-node=1 --cpus-per-task=16 --gres=gpu:4
export OMP_NUM_THREADS=4
torchrun --standalone --nproc_per_node=4 train.py
""",
        """#!/bin/bash
#SBATCH --nodes=2 --ntasks-per-node=4 --cpus-per-task=8 --gres=gpu:4
export OMP_NUM_THREADS=$SLURM_CPUS_PER_TASK
srun python train.py
""",
    ),
)
