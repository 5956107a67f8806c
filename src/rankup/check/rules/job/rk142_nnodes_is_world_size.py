"""--nnodes that is the number of processes."""

from __future__ import annotations

from collections.abc import Iterator

from rankup.check.facts.job.commands import Value
from rankup.check.facts.job.job import Job
from rankup.check.facts.job.questions import number_of_processes
from rankup.check.rule import Match, Rule
from rankup.findings.finding import Confidence, Severity


def find(job: Job) -> Iterator[Match]:
    nodes = job.request.nodes
    for launch in job.launches:
        value = launch.options.get("nnodes")
        if value is None or not nodes or not (launch.is_torchrun or launch.launcher == "accelerate"):
            continue
        name = number_of_processes(job, value)
        if name is None:
            continue
        count = _count(job, name, value)
        follows = name not in job.assigned  # the scheduler's own number goes with the tasks (RK104)
        if follows and launch.step is not None and launch.step.tasks == count:
            continue
        if count is not None and count != nodes:
            yield Match(
                job.document,
                launch.words["nnodes"].span,
                f"--nnodes is {name}, which is {count}: that is the number of processes, not of the {nodes} nodes.",
            )


def _count(job: Job, name: str, value: Value) -> int | None:
    return job.number(value) if job.number(value) is not None else job.request.number(name)


RULE = Rule(
    code="RK142",
    name="nnodes-is-world-size",
    severity=Severity.ERROR,
    confidence=Confidence.SURE,
    what="The --nnodes of torchrun is the number of processes (WORLD_SIZE, SLURM_NTASKS).",
    why="It waits for as many agents as there are processes, and each node has one agent only.",
    fix="Use --nnodes=$SLURM_NNODES.",
    find=find,
    fires=(
        """#!/bin/bash
#SBATCH --nodes=2 --ntasks-per-node=1 --gpus-per-node=4
export WORLD_SIZE=$((SLURM_NNODES * 4))
srun torchrun --nnodes=$WORLD_SIZE --nproc_per_node=4 --rdzv_backend=c10d --rdzv_endpoint=$HEAD:29500 train.py
""",
        """#!/bin/bash
#SBATCH --nodes=2 --ntasks-per-node=4 --gpus-per-node=4
srun --ntasks=2 --ntasks-per-node=1 torchrun --nnodes=$SLURM_NTASKS --nproc_per_node=4 --rdzv_backend=c10d train.py
""",
    ),
    silent=(
        """#!/bin/bash
#SBATCH --nodes=2 --ntasks-per-node=1 --gpus-per-node=4
srun torchrun --nnodes=$SLURM_NTASKS --nproc_per_node=4 --rdzv_backend=c10d --rdzv_endpoint=$HEAD:29500 train.py
""",
        """#!/bin/bash
# one of a platform's pods, in which WORLD_SIZE is the number of pods
torchrun --nnodes=$WORLD_SIZE --node_rank=$RANK --nproc_per_node=8 --master_addr=$MASTER_ADDR train.py
""",
    ),
)
