"""A full stop after a number in a directive."""

from __future__ import annotations

import re
from collections.abc import Iterator

from rankup.check.document import Span
from rankup.check.facts.job import Job
from rankup.check.rule import Edit, Match, Rule, Safety
from rankup.findings.finding import Confidence, Severity

_COUNTS = ("nodes", "ntasks", "ntasks-per-node", "cpus-per-task", "gpus", "gpus-per-node", "gpus-per-task")


def find(job: Job) -> Iterator[Match]:
    for directive in job.request.directives:
        if directive.name in _COUNTS and re.fullmatch(r"([a-z0-9_]+:)?\d+\.", directive.value, re.I):
            end = directive.value_span.end
            if job.document[Span(end - 1, end)] != ".":
                end -= 1  # a quote
            yield Match(
                job.document,
                directive.span,
                f"The value {directive.value!r} ends with a full stop.",
                (Edit(Span(end - 1, end), ""),),
            )


RULE = Rule(
    code="RK132",
    name="dot-after-number",
    severity=Severity.ERROR,
    confidence=Confidence.SURE,
    what="A number in a directive is followed by a full stop.",
    why="The scheduler refuses the value (invalid numeric value).",
    fix="Remove the full stop.",
    find=find,
    safety=Safety.SAFE,
    fires=(
        """#!/bin/bash
#SBATCH --nodes=1
#SBATCH --cpus-per-task=72.
srun python train.py
""",
        """#!/bin/bash
#SBATCH -N 2.
srun python train.py
""",
    ),
    silent=(
        """#!/bin/bash
#SBATCH --nodes=1
#SBATCH --cpus-per-task=72
srun python train.py
""",
        """#!/bin/bash
#SBATCH --nodes=1
#SBATCH --output=log.
#SBATCH --mem=1.5G
srun python train.py
""",
    ),
)
