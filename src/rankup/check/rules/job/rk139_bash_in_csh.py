"""Bash's syntax in a csh script."""

from __future__ import annotations

from collections.abc import Iterator

from rankup.check.facts.job import Job
from rankup.check.rule import Match, Rule
from rankup.findings.finding import Confidence, Severity


def find(job: Job) -> Iterator[Match]:
    if job.csh_words:
        span = job.csh_words[0]
        yield Match(
            job.document, span, f"{job.document[span].strip()!r} is bash, but the first line asks for csh."
        )


RULE = Rule(
    code="RK139",
    name="bash-in-csh",
    severity=Severity.ERROR,
    confidence=Confidence.SURE,
    what="A script whose first line names csh or tcsh is written for bash.",
    why="A csh does not know export, if … then … fi, or NAME=value: the script fails at that line.",
    fix="Begin the script with #!/bin/bash, or write setenv NAME value.",
    find=find,
    fires=(
        """#!/bin/csh
#SBATCH --nodes=1
export OMP_NUM_THREADS=4
srun python train.py
""",
        """#!/bin/tcsh
#PBS -l select=1:ncpus=4
if [ -d data ]; then
  echo there
fi
python train.py
""",
    ),
    silent=(
        """#!/bin/csh
#SBATCH --nodes=1
setenv OMP_NUM_THREADS 4
set x = 3
if ($x > 2) then
  echo three
endif
srun python train.py
""",
        """#!/bin/bash
#SBATCH --nodes=1
export OMP_NUM_THREADS=4
srun python train.py
""",
    ),
)
