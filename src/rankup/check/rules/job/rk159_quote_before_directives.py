"""A quote that was left before the directives."""

from __future__ import annotations

from collections.abc import Iterator

from rankup.check.document import Span
from rankup.check.facts.job import Job
from rankup.check.rule import Edit, Match, Rule, Safety
from rankup.findings.finding import Confidence, Severity


def find(job: Job) -> Iterator[Match]:
    quote = job.quote_first
    if quote is None or not job.document.complete:
        return
    line = job.document.line_of(quote.start)
    start = job.document.starts[line]
    end = min(start + len(job.document.line(line)) + 1, len(job.document.text))
    yield Match(
        job.document,
        quote,
        f"This {job.document[quote]} is the first command: no directive after it is read, and all is one text to bash.",
        (Edit(Span(start, end), ""),),
    )


RULE = Rule(
    code="RK159",
    name="quote-before-directives",
    severity=Severity.ERROR,
    confidence=Confidence.SURE,
    what="A line with nothing but a quote stands before the directives.",
    why="It comes from a copied page. The scheduler stops at it, and the shell waits for the other quote.",
    fix="Remove the line.",
    find=find,
    safety=Safety.SAFE,
    fires=(
        """#!/bin/bash
"
#SBATCH --nodes=2
srun python train.py
""",
        """#!/bin/bash
'''
#PBS -l select=1:ncpus=4
cd $PBS_O_WORKDIR
python train.py
""",
    ),
    silent=(
        """#!/bin/bash
#SBATCH --nodes=2
srun python train.py
""",
        """#!/bin/bash
# "
#SBATCH --nodes=2
srun python train.py
""",
    ),
)
