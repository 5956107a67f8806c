"""A job that starts nothing, since its commands are comments."""

from __future__ import annotations

import re
from collections.abc import Iterator

from rankup.check.document import Span
from rankup.check.facts.job.builtins import SETTINGS
from rankup.check.facts.job.commands import Command
from rankup.check.facts.job.job import Job
from rankup.check.rule import Match, Rule
from rankup.findings.finding import Confidence, Severity

_PROGRAMS = "srun|torchrun|mpirun|mpiexec|python3?|accelerate launch"
_START = re.compile(rf"^[ \t]*#+[ \t]*((?:time[ \t]+)?(?:{_PROGRAMS})[ \t]+\S[^\n]*)", re.M)


def find(job: Job) -> Iterator[Match]:
    if not job.scheduler or not job.complete or job.sources_files or not job.commands:
        return
    if any(command.argv and _runs(command) for command in job.commands):
        return
    # What stands before the first command tells how to use the script.
    commented = [match.span(1) for match in _START.finditer(job.document.text, job.first_command)]
    if commented:
        span = Span(*commented[-1])
        yield Match(
            job.document, span, "This job starts nothing: each line that starts a program is a comment."
        )


def _runs(command: Command) -> bool:
    """Whether a command is what the job is for: a job that only sleeps holds its nodes for somebody."""
    return command.name not in SETTINGS or command.name == "sleep"


RULE = Rule(
    code="RK176",
    name="commented-run",
    severity=Severity.ERROR,
    confidence=Confidence.LIKELY,
    what="All lines of a job script that would start a program are comments.",
    why="The job waits in the queue, starts, does nothing, and ends well.",
    fix="Remove the # before the line that is to run.",
    find=find,
    fires=(
        """#!/bin/bash
#SBATCH --nodes=2 --gpus-per-node=4
module load cuda
export MASTER_PORT=12345
# srun python train.py --epochs 90
""",
        """#!/bin/bash
#SBATCH --nodes=1
source env/bin/activate
#srun --ntasks=4 python train.py
#srun --ntasks=8 python train.py
""",
    ),
    silent=(
        """#!/bin/bash
#SBATCH --nodes=1
# srun python train.py
srun python test.py
""",
        """#!/bin/bash
#SBATCH --nodes=1
# Holds a node. On the login node: srun --jobid=<id> --overlap --pty bash
mkdir -p logs
sleep 12h
""",
    ),
)
