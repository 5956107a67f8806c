"""A log in a folder that the script itself makes."""

from __future__ import annotations

from collections.abc import Iterator

from rankup.check.facts.job import Job
from rankup.check.rule import Match, Rule
from rankup.findings.finding import Confidence, Severity


def find(job: Job) -> Iterator[Match]:
    for name in ("output", "error", "o", "e"):
        directive = job.request.by_name.get(name)
        if directive is None or "/" not in directive.value or job.scheduler not in ("slurm", "pbs", "torque"):
            continue
        folder = directive.value.rpartition("/")[0].removeprefix("./")
        for command in job.named("mkdir"):
            made = [(arg or "").removeprefix("./").rstrip("/") for arg in command.args]
            if folder and folder in made and command.shell.step is None:
                yield Match(
                    job.document,
                    directive.span,
                    f"The log goes to {folder}/, which this script makes only after the scheduler has opened the log.",
                )
                return


RULE = Rule(
    code="RK149",
    name="log-folder",
    severity=Severity.NOTE,
    confidence=Confidence.LIKELY,
    what="The folder of the log is made by the job script itself.",
    why="SLURM before 23.02 ends a job whose log cannot be opened, without a message; PBS leaves the log on the node.",
    fix="Make the folder before you submit the job.",
    find=find,
    fires=(
        """#!/bin/bash
#SBATCH --output=logs/%x-%j.out
mkdir -p logs
python train.py
""",
        """#!/bin/bash
#PBS -l select=1:ncpus=4
#PBS -o output/train.log
cd "$PBS_O_WORKDIR"
mkdir -p output
python train.py
""",
    ),
    silent=(
        """#!/bin/bash
#SBATCH --output=logs/%x-%j.out
mkdir -p checkpoints
python train.py
""",
        """#!/bin/bash
#SBATCH --output=%x-%j.out
mkdir -p logs
python train.py
""",
    ),
)
