"""A comment at the end of a #PBS line."""

from __future__ import annotations

from collections.abc import Iterator

from rankup.check.document import Span
from rankup.check.facts.job import Job
from rankup.check.rule import Edit, Match, Rule, Safety
from rankup.findings.finding import Confidence, Severity


def find(job: Job) -> Iterator[Match]:
    for line in job.lines:
        if line.scheduler != "pbs" or line.late or line.comment is None or not line.words:
            continue
        if job.scheduler not in ("pbs", "torque"):
            continue
        start = line.words[-1][1].end
        yield Match(
            job.document,
            Span(line.comment.start, line.span.end),
            "PBS reads this comment as a part of the directive.",
            (Edit(Span(start, line.span.end), ""),),
            severity=Severity.WARNING if job.scheduler == "torque" else None,
            confidence=Confidence.LIKELY if job.scheduler == "torque" else None,
        )


RULE = Rule(
    code="RK135",
    name="text-after-directive",
    severity=Severity.ERROR,
    confidence=Confidence.SURE,
    what="A #PBS line ends with a comment.",
    why="SLURM allows it, PBS does not: qsub: directive error, and nothing is submitted (OpenPBS 23.06).",
    fix="Write the comment on a line of its own.",
    find=find,
    safety=Safety.SAFE,
    fires=(
        """#!/bin/bash
#PBS -l select=1:ncpus=8:ngpus=1 # one GPU
cd "$PBS_O_WORKDIR"
python train.py
""",
        """#!/bin/bash
#PBS -N training   # the name
#PBS -l select=1:ncpus=4
cd "$PBS_O_WORKDIR"
python train.py
""",
    ),
    silent=(
        """#!/bin/bash
#SBATCH --nodes=1 # one node
srun python train.py
""",
        """#!/bin/bash
# one GPU
#PBS -l select=1:ncpus=8:ngpus=1
cd "$PBS_O_WORKDIR"
python train.py
""",
    ),
)
