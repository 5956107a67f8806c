"""conda activate in a shell that does not know it."""

from __future__ import annotations

from collections.abc import Iterator

from rankup.check.facts.job import Job
from rankup.check.rule import Match, Rule
from rankup.findings.finding import Confidence, Severity


def find(job: Job) -> Iterator[Match]:
    if not job.scheduler or not job.complete:
        return
    for command in job.commands:
        if command.name in ("source", ".", "eval") or command.name in ("module", "ml"):
            return  # any of them may define conda
        if command.name in ("conda", "mamba", "micromamba") and command.args[:1] == ("activate",):
            if not command.in_output:
                yield Match(
                    job.document,
                    command.span,
                    f"`{command.name} activate` needs conda's shell function, which nothing here defines.",
                )
            return


RULE = Rule(
    code="RK151",
    name="conda-without-init",
    severity=Severity.NOTE,
    confidence=Confidence.LIKELY,
    what="The job calls conda activate, and neither sources conda's own script nor evaluates its hook.",
    why="A batch shell reads no .bashrc on many sites: CommandNotFoundError, and the wrong Python runs.",
    fix='Add eval "$(conda shell.bash hook)" or source …/etc/profile.d/conda.sh before it.',
    find=find,
    fires=(
        """#!/bin/bash
#SBATCH --nodes=1
conda activate torch
python train.py
""",
        """#!/bin/bash
#PBS -l select=1:ncpus=4
cd "$PBS_O_WORKDIR"
mamba activate torch
python train.py
""",
    ),
    silent=(
        """#!/bin/bash
#SBATCH --nodes=1
source ~/miniconda3/etc/profile.d/conda.sh
conda activate torch
python train.py
""",
        """#!/bin/bash
#SBATCH --nodes=1
eval "$(conda shell.bash hook)"
conda activate torch
python train.py
""",
    ),
)
