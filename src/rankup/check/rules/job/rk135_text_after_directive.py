"""A comment at the end of a #PBS line."""

from __future__ import annotations

from collections.abc import Iterator

from rankup.check.document import Span
from rankup.check.facts.job.job import Job
from rankup.check.rule import Edit, Match, Rule, Safety
from rankup.findings.finding import Confidence, Severity


def find(job: Job) -> Iterator[Match]:
    if job.scheduler != "pbs" or "select" not in job.request.resources:
        return  # Torque, Moab and NQSV read #PBS lines too, and may allow it
    lines = [
        line
        for line in job.lines
        if line.scheduler == "pbs" and not line.late and line.comment and line.words
    ]
    if not lines:
        return
    first, count = lines[0], len(lines)
    start = first.comment.start if first.comment is not None else first.span.start
    yield Match(
        job.document,
        Span(start, first.span.end),
        f"PBS reads this comment as a part of the directive{f' ({count - 1} more follow)' * (count > 1)}.",
        tuple(Edit(Span(line.words[-1][1].end, line.span.end), "") for line in lines),
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
#PBS -l nodes=1:ppn=8 # Torque
cd "$PBS_O_WORKDIR"
python train.py
""",
        """#!/bin/bash
#PBS -b 2 # NQSV
#PBS -l elapstim_req=1:00:00
python train.py
""",
    ),
)
