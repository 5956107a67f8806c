"""A directive whose keyword is misspelt."""

from __future__ import annotations

from collections.abc import Iterator

from rankup.check.facts.job.job import Job
from rankup.check.rule import Edit, Match, Rule, Safety
from rankup.findings.finding import Confidence, Severity


def find(job: Job) -> Iterator[Match]:
    for span, meant in job.misspelt:
        shown = job.document[span]
        name = meant.strip()
        if job.scheduler and not name.endswith({"slurm": "SBATCH"}.get(job.scheduler, "PBS")):
            continue
        what = (
            f"{shown} is a comment; {name} was meant" if shown != name else f"{name} needs a blank after it"
        )
        yield Match(job.document, span, f"{what}.", (Edit(span, meant),))


RULE = Rule(
    code="RK134",
    name="misspelt-directive",
    severity=Severity.ERROR,
    confidence=Confidence.LIKELY,
    what="A comment looks like a directive whose keyword is misspelt.",
    why="The scheduler ignores it without a message, and the job runs with the default.",
    fix="Correct the keyword.",
    find=find,
    safety=Safety.UNSAFE,
    fires=(
        """#!/bin/bash
#SBATCH --nodes=1
#SBSTCH --gres=gpu:4
srun python train.py
""",
        """#!/bin/bash
#PSB -l select=1:ncpus=8:ngpus=1
cd "$PBS_O_WORKDIR"
python train.py
""",
    ),
    silent=(
        """#!/bin/bash
#SBATCH --nodes=1
##SBATCH --gres=gpu:4
# SBATCH --gres=gpu:2
# BATCH --size is explained below
srun python train.py
""",
        """#!/bin/bash
#SBATCH --nodes=1
#BATCH of jobs
# USAGE --help
srun python train.py
""",
    ),
)
