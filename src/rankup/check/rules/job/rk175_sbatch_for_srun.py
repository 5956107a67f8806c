"""sbatch gets a program in place of a job script."""

from __future__ import annotations

import re
from collections.abc import Iterator

from rankup.check.facts.job.job import Job
from rankup.check.facts.job.options import parse
from rankup.check.rule import Edit, Match, Rule, Safety
from rankup.findings.finding import Confidence, Severity

_PROGRAM = re.compile(r"python[\d.]*|torchrun|accelerate|deepspeed|mpirun|mpiexec|srun")


def find(job: Job) -> Iterator[Match]:
    for command in job.named("sbatch"):
        parsed = parse("sbatch", command.argv[1:])
        name = (parsed.rest[0].known or "").rpartition("/")[2] if parsed.rest else ""
        if not _PROGRAM.fullmatch(name) or parsed.unknown or "wrap" in parsed.options:
            continue
        span = command.argv[0].span
        edits = (Edit(span, "srun"),) if job.document[span] == "sbatch" and job.scheduler else ()
        yield Match(job.document, command.span, f"sbatch gets {name} in place of a job script.", edits)


RULE = Rule(
    code="RK175",
    name="sbatch-for-srun",
    severity=Severity.ERROR,
    confidence=Confidence.SURE,
    what="A program, and not a job script, is given to sbatch.",
    why="A script of sbatch begins with #!. It looks for a file of this name and refuses it: nothing runs.",
    fix="In a job start the program with srun; elsewhere use sbatch --wrap='python train.py'.",
    find=find,
    safety=Safety.UNSAFE,
    fires=(
        """#!/bin/bash
#SBATCH --nodes=1 --gpus-per-node=1
sbatch python train.py --epochs 3 &
wait
""",
        """#!/bin/bash
#SBATCH --nodes=1
sbatch --time=10 python3 train.py
""",
    ),
    silent=(
        """#!/bin/bash
sbatch --time=10 --wrap="python train.py"
""",
        """#!/bin/bash
#SBATCH --nodes=1
sbatch train.sh python
srun python train.py
""",
    ),
)
