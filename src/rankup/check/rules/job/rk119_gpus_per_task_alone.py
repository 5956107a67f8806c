"""--gpus-per-task in a job that does not say how many tasks it has."""

from __future__ import annotations

from collections.abc import Iterator

from rankup.check.document import Span
from rankup.check.facts.job import Job
from rankup.check.rule import Edit, Match, Rule, Safety
from rankup.findings.finding import Confidence, Severity


def find(job: Job) -> Iterator[Match]:
    directive = job.request.get("gpus-per-task")
    if directive is None or not directive.known or job.request.heterogeneous or not job.document.complete:
        return
    if (
        job.request.get("ntasks", "ntasks-per-node", "ntasks-per-gpu", "gpus", "gres", "gpus-per-node")
        is not None
    ):
        return
    end = directive.line.end
    yield Match(
        job.document,
        directive.span,
        f"--gpus-per-task={directive.value} without --ntasks or --ntasks-per-node.",
        (Edit(Span(end, end), "\n#SBATCH --ntasks-per-node=1"),),
    )


RULE = Rule(
    code="RK119",
    name="gpus-per-task-alone",
    severity=Severity.NOTE,
    confidence=Confidence.LIKELY,
    what="The option --gpus-per-task is given without a number of tasks.",
    why="Some versions of SLURM reject the job: used without either --gpus or --ntasks (pytorch/torchx#1100).",
    fix="Add --ntasks-per-node, or ask with --gpus-per-node.",
    find=find,
    safety=Safety.SAFE,
    fires=(
        """#!/bin/bash
#SBATCH --nodes=2
#SBATCH --gpus-per-task=4
srun python train.py
""",
        """#!/bin/bash
#SBATCH --gpus-per-task 1 --time 1:00:00
srun python train.py
""",
    ),
    silent=(
        """#!/bin/bash
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=4
#SBATCH --gpus-per-task=1
srun python train.py
""",
        """#!/bin/bash
#SBATCH --nodes=2
#SBATCH --gpus-per-node=4
srun python train.py
""",
    ),
)
