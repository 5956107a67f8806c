"""Tasks that the job asks for and nobody starts."""

from __future__ import annotations

from collections.abc import Iterator

from rankup.check.facts.job.job import Job
from rankup.check.facts.job.questions import fans_out, is_distributed, trains, uses_torch
from rankup.check.rule import Match, Rule
from rankup.findings.finding import Confidence, Severity


def find(job: Job) -> Iterator[Match]:
    request = job.request
    if job.scheduler != "slurm" or not job.complete or fans_out(job) or request.heterogeneous:
        return
    tasks, gpus = request.tasks_per_node, request.gpus_per_node
    if tasks is None or tasks < 2 or tasks != gpus:
        return  # without as many GPUs, tasks are often meant as cores
    per_gpu = "ntasks-per-gpu" in request.by_name  # nobody means cores by that
    for launch in job.launches:
        if launch.launcher != "python" or launch.step is not None or launch.command.in_loop or launch.module:
            continue
        if launch.command.background or launch.command.in_output:
            continue
        if any(word.tail.endswith(".py") for word in launch.arguments):
            continue  # a launcher of its own: python launch.py train.py
        if launch.program is not None and launch.program.started:
            continue  # it starts its ranks itself
        known = is_distributed(launch)
        if (
            known is False
            and not per_gpu
            and (uses_torch(launch) is not True or request.gpus_per_task is None)
        ):
            continue
        sure = known or trains(job, launch)
        yield Match(
            job.document,
            launch.span,
            f"The job asks for {tasks} tasks per node, one per GPU, and this starts one process.",
            severity=None if sure else Severity.NOTE,
        )


RULE = Rule(
    code="RK141",
    name="tasks-never-started",
    severity=Severity.WARNING,
    confidence=Confidence.LIKELY,
    what="The job asks for one task per GPU, and starts python without srun, mpirun or torchrun.",
    why="Only srun (or mpirun) starts tasks: a plain command is one process, and the other GPUs stay idle.",
    fix="Put srun before it, or start the processes with torchrun and ask for one task per node.",
    find=find,
    fires=(
        """#!/bin/bash
#SBATCH --nodes=1
#SBATCH --ntasks-per-node=4
#SBATCH --gpus-per-node=4
export MASTER_ADDR=$(hostname) MASTER_PORT=29500
python train.py
""",
        """#!/bin/bash
#SBATCH --nodes=2 --ntasks-per-node=2 --gres=gpu:2
export WORLD_SIZE=4
python train.py
""",
    ),
    silent=(
        """#!/bin/bash
#SBATCH --nodes=1 --ntasks-per-node=4 --gpus-per-node=4
export MASTER_ADDR=$(hostname) MASTER_PORT=29500
srun python train.py
""",
        """#!/bin/bash
#SBATCH --nodes=1 --ntasks=16 --gres=gpu:1
python train.py
""",
    ),
)
