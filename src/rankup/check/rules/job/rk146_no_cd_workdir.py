"""A PBS job that stays in the home directory."""

from __future__ import annotations

from collections.abc import Iterator

from rankup.check.document import Span
from rankup.check.facts.job.job import Job
from rankup.check.rule import Edit, Match, Rule, Safety
from rankup.findings.finding import Confidence, Severity


def find(job: Job) -> Iterator[Match]:
    request = job.request
    if job.scheduler not in ("pbs", "torque") or not job.complete or job.sources_files:
        return
    if request.get("d", "w") is not None or "wd" in request.resources or request.get("W") is not None:
        return
    for command in job.commands:
        if command.name in ("cd", "pushd") or any("PBS_O_WORKDIR" in word.text for word in command.argv):
            return
        for launch in job.launches:
            target = launch.target
            if launch.command is not command or target is None or target.known is None:
                continue
            if target.known.startswith(("/", "~")) or not target.known.endswith(".py"):
                continue
            place = job.document.starts[job.document.line_of(job.first_command)]
            yield Match(
                job.document,
                launch.span,
                f"The job starts in the home directory, where {target.known} is looked for.",
                (Edit(Span(place, place), 'cd "$PBS_O_WORKDIR"\n'),),
            )
            return


RULE = Rule(
    code="RK146",
    name="no-cd-workdir",
    severity=Severity.NOTE,  # some sites start jobs in the folder of the submission
    confidence=Confidence.LIKELY,
    what="A PBS job starts a program by a relative path, and never changes to the folder of its submission.",
    why="PBS runs a job in the home directory, unlike SLURM, unless the site says otherwise.",
    fix='Add cd "$PBS_O_WORKDIR".',
    find=find,
    safety=Safety.UNSAFE,
    fires=(
        """#!/bin/bash
#PBS -l select=1:ncpus=8:ngpus=1
module load pytorch
python train.py
""",
        """#!/bin/bash
#PBS -l nodes=1:ppn=8
torchrun --standalone --nproc_per_node=2 src/train.py
""",
    ),
    silent=(
        """#!/bin/bash
#PBS -l select=1:ncpus=8:ngpus=1
cd "$PBS_O_WORKDIR"
python train.py
""",
        """#!/bin/bash
#PBS -l select=1:ncpus=8:ngpus=1
python /home/me/project/train.py
""",
    ),
)
