"""A variable that no shell expands any more."""

from __future__ import annotations

import re
from collections.abc import Iterator

from rankup.check.facts.job.commands import Value
from rankup.check.facts.job.job import Job, Launch
from rankup.check.rule import Match, Rule
from rankup.findings.finding import Confidence, Severity

_NAME = re.compile(r"\$\{?([A-Z][A-Z0-9_]*)")
_OPTIONS = ("nnodes", "nproc_per_node", "node_rank", "rdzv_endpoint", "rdzv_id", "master_addr", "master_port")


def find(job: Job) -> Iterator[Match]:
    for launch in job.launches:
        if _is_wrapped(job, launch):
            continue
        for option, value in _values(launch):
            match = _NAME.search("".join(literal.text for literal in value.literals()))
            if match is not None:
                yield Match(
                    job.document,
                    value.span,
                    f"--{option} gets the text ${match.group(1)}: no shell expands it any more.",
                )


def _values(launch: Launch) -> Iterator[tuple[str, Value]]:
    for option in _OPTIONS:
        value = launch.options.get(option)
        if value is not None:
            yield option, value


def _is_wrapped(job: Job, launch: Launch) -> bool:
    """Whether a script that is not here starts it, which may well expand the text."""
    command = launch.command.parent
    while command is not None:
        if command in job.starts_unknown:
            return True
        command = command.parent
    return False


RULE = Rule(
    code="RK137",
    name="escaped-in-single-quotes",
    severity=Severity.ERROR,
    confidence=Confidence.SURE,
    what="A variable reaches torchrun as text, because its dollar sign is escaped once too often.",
    why="A backslash stays inside single quotes. The task's shell then reads \\$ as a dollar sign, not as a variable.",
    fix="Write bash -c '… $SLURM_NODEID …' or bash -c \"… \\$SLURM_NODEID …\", not both.",
    find=find,
    fires=(
        """#!/bin/bash
#SBATCH --nodes=2 --ntasks-per-node=1
srun bash -c 'torchrun --nnodes=2 --node_rank=\\$SLURM_NODEID --master_addr=$MASTER_ADDR train.py'
""",
        """#!/bin/bash
#SBATCH --nodes=2 --ntasks-per-node=1
srun bash -c 'torchrun --nnodes=2 --rdzv_id=\\$SLURM_JOB_ID --rdzv_backend=c10d --rdzv_endpoint=$MASTER_ADDR:1 train.py'
""",
    ),
    silent=(
        """#!/bin/bash
#SBATCH --nodes=2 --ntasks-per-node=1
srun bash -c 'torchrun --nnodes=2 --rdzv_id=$SLURM_JOB_ID --rdzv_backend=c10d --rdzv_endpoint=$MASTER_ADDR:1 train.py'
""",
        """#!/bin/bash
#SBATCH --nodes=2 --ntasks-per-node=1
srun bash -c "torchrun --nnodes=2 --node_rank=\\$SLURM_NODEID --master_addr=$MASTER_ADDR train.py"
""",
    ),
)
