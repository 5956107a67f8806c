"""What a job does when it starts, and cannot do again after a requeue."""

from __future__ import annotations

from collections.abc import Iterator

from rankup.check.facts.job.job import Job
from rankup.check.facts.job.signals import requeue_commands
from rankup.check.rule import Match, Rule
from rankup.findings.finding import Confidence, Severity


def find(job: Job) -> Iterator[Match]:
    if job.scheduler != "slurm" or not (requeue_commands(job) or "requeue" in job.request.by_name):
        return
    for command in job.commands:
        options = "".join(arg for arg in command.args if arg and arg.startswith("-"))
        if command.conditional or command.function or command.shell.step is not None or command.answered:
            continue
        if command.name == "mkdir" and not ("p" in options or "--parents" in options):
            what = "`mkdir` without -p fails"
        elif command.name == "ln" and "s" in options and "f" not in options:
            what = "`ln -s` without -f fails, or makes a link inside of the folder,"
        else:
            continue
        ends = command.exits_on_error and command.name == "mkdir"
        yield Match(
            job.document,
            command.span,
            f"{what} when the job starts again after a requeue"
            + (": `set -e` ends the job then." if ends else "."),
            severity=Severity.WARNING if ends else None,
        )


RULE = Rule(
    code="RK184",
    name="second-start",
    severity=Severity.NOTE,
    confidence=Confidence.LIKELY,
    what="A job that may be requeued makes a folder or a link as if it were always its first start.",
    why="A requeued job keeps its number, and runs its script from the first line again.",
    fix="Use mkdir -p, and ln -sfn.",
    find=find,
    fires=(
        """#!/bin/bash
#SBATCH --gres=gpu:1 --requeue --open-mode=append
set -e
mkdir results/$SLURM_JOB_ID
python train.py --out results/$SLURM_JOB_ID
""",
        """#!/bin/bash
#SBATCH --gres=gpu:1 --open-mode=append --signal=B:USR1@60
ln -s /checkpoint/$SLURM_JOB_ID checkpoints
trap 'scontrol requeue $SLURM_JOB_ID' USR1
python train.py &
wait
""",
    ),
    silent=(
        """#!/bin/bash
#SBATCH --gres=gpu:1 --requeue --open-mode=append
mkdir -p results/$SLURM_JOB_ID
ln -sfn /checkpoint/$SLURM_JOB_ID checkpoints
python train.py
""",
        """#!/bin/bash
#SBATCH --gres=gpu:1
mkdir results/$SLURM_JOB_ID
python train.py
""",
    ),
)
