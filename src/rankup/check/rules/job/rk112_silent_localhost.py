"""A host list that silently becomes localhost if scontrol fails."""

from __future__ import annotations

from collections.abc import Iterator

from rankup.check.facts.job import Job
from rankup.check.facts.job_questions import LOCAL
from rankup.check.rule import Match, Rule
from rankup.findings.finding import Confidence, Severity


def find(job: Job) -> Iterator[Match]:
    if not job.request.many_nodes:
        return
    asks = any(command.in_output and command.name == "scontrol" for command in job.commands)
    for command in job.commands:
        if not (asks and command.in_output and command.conditional and command.name in ("echo", "printf")):
            continue
        if len(command.args) == 1 and command.args[0] in LOCAL:
            yield Match(
                job.document,
                command.span,
                f"If scontrol fails, the first node becomes {command.args[0]} without a message.",
            )


RULE = Rule(
    code="RK112",
    name="silent-localhost",
    severity=Severity.WARNING,
    confidence=Confidence.SURE,
    what="A job of several nodes falls back to localhost where scontrol fails, say inside a container.",
    why="Each node then waits for itself until the timeout, and nothing in the log names the cause.",
    fix="Let the job fail there: ${MASTER_ADDR:?no host list}.",
    find=find,
    fires=(
        """#!/bin/bash
#SBATCH --nodes=2
export MASTER_ADDR=$(scontrol show hostnames "$SLURM_JOB_NODELIST" 2>/dev/null | head -n 1 || echo localhost)
srun python train.py
""",
        """#!/bin/bash
#SBATCH --nodes=4
MASTER_ADDR=$(scontrol show hostnames "$SLURM_NODELIST" | head -1 || echo "127.0.0.1")
srun python train.py --master $MASTER_ADDR
""",
    ),
    silent=(
        """#!/bin/bash
#SBATCH --nodes=2
export MASTER_ADDR=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)
srun python train.py
""",
        """#!/bin/bash
#SBATCH --nodes=1
export MASTER_ADDR=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1 || echo localhost)
srun python train.py
""",
    ),
)
