"""The number of GPUs, from the digits of their numbers."""

from __future__ import annotations

from collections.abc import Iterator

from rankup.check.facts.job import Job
from rankup.check.facts.job_commands import Command
from rankup.check.rule import Match, Rule
from rankup.findings.finding import Confidence, Severity

_LISTS = (
    "SLURM_JOB_GPUS",
    "SLURM_STEP_GPUS",
    "CUDA_VISIBLE_DEVICES",
    "GPU_DEVICE_ORDINAL",
    "ROCR_VISIBLE_DEVICES",
)


def find(job: Job) -> Iterator[Match]:
    for command in job.commands:
        if command.name not in ("echo", "printf") or not command.in_output or not command.pipe:
            continue
        names = [
            variable.name for word in command.argv for variable in word.variables() if variable.name in _LISTS
        ]
        if names and _counts_characters(job, command):
            yield Match(
                job.document,
                command.span,
                f"The digits of ${names[0]} are counted, not its entries: 10 has two, and a UUID many.",
            )
    for variable in job.expansions:
        if variable.operator == "#" and variable.name in _LISTS:
            yield Match(
                job.document,
                variable.span,
                f"${{#{variable.name}}} is the length of a text, not the number of GPUs.",
            )


def _counts_characters(job: Job, command: Command) -> bool:
    """Whether what follows in the pipeline counts characters: wc -c, wc -m, grep -o [0-9]."""
    index = job.commands.index(command)
    for following in job.commands[index + 1 : index + 1 + len(command.pipe)]:
        if following.name == "wc" and following.has("-c", "-m", "--chars", "--bytes"):
            return True
        if (
            following.name == "grep"
            and following.has("-o")
            and any(arg in ("[0-9]", ".", r"\d") for arg in following.args)
        ):
            return True
    return False


RULE = Rule(
    code="RK147",
    name="gpus-from-digits",
    severity=Severity.WARNING,
    confidence=Confidence.SURE,
    what="GPUs are counted by the characters of SLURM_JOB_GPUS or CUDA_VISIBLE_DEVICES.",
    why="The count is wrong on nodes with more than ten GPUs, and where the entries are UUIDs.",
    fix="Use $SLURM_GPUS_ON_NODE, or nvidia-smi --list-gpus | wc -l.",
    find=find,
    fires=(
        """#!/bin/bash
#SBATCH --nodes=1 --gres=gpu:4
N=$(echo $SLURM_JOB_GPUS | tr -d ',' | wc -c)
torchrun --standalone --nproc_per_node=$N train.py
""",
        """#!/bin/bash
#SBATCH --nodes=1 --gres=gpu:4
N=$(echo "$CUDA_VISIBLE_DEVICES" | grep -o '[0-9]' | wc -l)
torchrun --standalone --nproc_per_node=$N train.py
""",
    ),
    silent=(
        """#!/bin/bash
#SBATCH --nodes=1 --gres=gpu:4
N=$(echo $CUDA_VISIBLE_DEVICES | tr ',' '\\n' | wc -l)
torchrun --standalone --nproc_per_node=$N train.py
""",
        """#!/bin/bash
#SBATCH --nodes=1 --gres=gpu:4
torchrun --standalone --nproc_per_node=$SLURM_GPUS_ON_NODE train.py
""",
    ),
)
