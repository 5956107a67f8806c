"""A directive whose keyword is misspelt."""

from __future__ import annotations

from collections.abc import Iterator

from rankup.check.document import Span
from rankup.check.facts.job.job import Job
from rankup.check.rule import Edit, Match, Rule, Safety
from rankup.findings.finding import Confidence, Severity


def find(job: Job) -> Iterator[Match]:
    found: dict[str, list[tuple[Span, str]]] = {}
    for span, meant in job.misspelt:
        if not job.scheduler or meant.strip().endswith({"slurm": "SBATCH"}.get(job.scheduler, "PBS")):
            found.setdefault(job.document[span], []).append((span, meant))
    for shown, alike in found.items():
        name = alike[0][1].strip()
        more = f" ({len(alike) - 1} more like this)" * (len(alike) > 1)
        what = (
            f"{shown} is a comment; {name} was meant" if shown != name else f"{name} needs a blank after it"
        )
        edits = tuple(Edit(span, meant) for span, meant in alike)
        yield Match(job.document, alike[0][0], f"{what}{more}.", edits)


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
