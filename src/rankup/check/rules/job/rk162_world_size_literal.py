"""WORLD_SIZE in the script, and another number of tasks."""

from __future__ import annotations

from collections.abc import Iterator

from rankup.check.facts.job import Job
from rankup.check.facts.job_questions import is_distributed
from rankup.check.rule import Match, Rule
from rankup.findings.finding import Confidence, Severity


def find(job: Job) -> Iterator[Match]:
    for launch in job.launches:
        step = launch.step
        if launch.forms_ranks or step is None or step.in_loop or step.background or step.kind != "srun":
            continue
        value = launch.exported("WORLD_SIZE")
        count = job.number(value)
        if value is None or count is None or step.tasks is None or count == step.tasks:
            continue
        if step.tasks == step.nodes and is_distributed(launch) is None:
            continue  # one task per node: the program may start the others
        yield Match(
            job.document,
            value.span,
            f"WORLD_SIZE is {count}, and srun starts {step.tasks} tasks.",
        )


RULE = Rule(
    code="RK162",
    name="world-size-literal",
    severity=Severity.ERROR,
    confidence=Confidence.LIKELY,
    what="The script exports a WORLD_SIZE that is not the number of tasks that srun starts.",
    why="The process group waits for ranks that nobody starts, or refuses those that are too many.",
    fix="Write export WORLD_SIZE=$SLURM_NTASKS.",
    find=find,
    fires=(
        """#!/bin/bash
#SBATCH --nodes=2 --ntasks-per-node=4 --gpus-per-node=4
export WORLD_SIZE=4
srun python train.py
""",
        """#!/bin/bash
#SBATCH --nodes=4 --ntasks-per-node=2 --gpus-per-node=2
GPUS=4
export WORLD_SIZE=$((SLURM_NNODES * GPUS))
srun python train.py
""",
    ),
    silent=(
        """#!/bin/bash
#SBATCH --nodes=2 --ntasks-per-node=4 --gpus-per-node=4
export WORLD_SIZE=$SLURM_NTASKS
srun python train.py
""",
        """#!/bin/bash
#SBATCH --nodes=2 --ntasks-per-node=1 --gpus-per-node=4
export WORLD_SIZE=8
srun python it_spawns_four_per_node.py
""",
    ),
)
