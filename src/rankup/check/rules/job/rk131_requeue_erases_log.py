"""A requeued job that starts its log anew."""

from __future__ import annotations

from collections.abc import Iterator

from rankup.check.document import Span
from rankup.check.facts.job import Job
from rankup.check.facts.job_signals import requeue_commands
from rankup.check.rule import Edit, Match, Rule, Safety
from rankup.findings.finding import Confidence, Severity


def find(job: Job) -> Iterator[Match]:
    if job.scheduler != "slurm" or not job.request.directives or not job.document.complete:
        return
    mode = job.request.get("open-mode")
    if mode is not None and mode.value.startswith("a"):
        return
    output = job.request.get("output")
    if output is not None and output.value == "/dev/null":
        return
    directive = job.request.get("requeue")
    commands = requeue_commands(job)
    if directive is None and not commands:
        return
    line = directive.line if directive is not None else job.request.directives[-1].line
    edit = (
        Edit(mode.value_span, "append")
        if mode is not None
        else Edit(Span(line.end, line.end), "\n#SBATCH --open-mode=append")
    )
    yield Match(
        job.document,
        directive.span if directive is not None else commands[-1].span,
        "After a requeue the job writes its log from the beginning, over that of the first run.",
        (edit,),
        severity=None if commands else Severity.NOTE,
    )


RULE = Rule(
    code="RK131",
    name="requeue-erases-log",
    severity=Severity.WARNING,
    confidence=Confidence.SURE,
    what="A job that may be requeued does not append to its log.",
    why="The default of most sites is --open-mode=truncate: the log of the first run is gone (SLURM 22.05).",
    fix="Add #SBATCH --open-mode=append.",
    find=find,
    safety=Safety.SAFE,
    fires=(
        """#!/bin/bash
#SBATCH --requeue
#SBATCH --output=train.%j.log
srun python train.py
""",
        """#!/bin/bash
#SBATCH --signal=B:USR1@300
#SBATCH --open-mode=truncate
trap 'scontrol requeue $SLURM_JOB_ID' USR1
srun python train.py &
wait
""",
    ),
    silent=(
        """#!/bin/bash
#SBATCH --requeue --open-mode=append
srun python train.py
""",
        """#!/bin/bash
#SBATCH --no-requeue
srun python train.py
""",
    ),
)
