"""A shell variable in a directive."""

from __future__ import annotations

import re
from collections.abc import Iterator

from rankup.check.facts.job.job import Job
from rankup.check.rule import Match, Rule
from rankup.findings.finding import Confidence, Severity

#: Variables of a shell or of the scheduler. Others may be filled in by whoever writes the script from a template.
_KNOWN = re.compile(r"\$\{?(HOME|USER|PWD|SCRATCH|WORK|HOSTNAME|SLURM_\w+|PBS_\w+|LSB_\w+)\b")


def find(job: Job) -> Iterator[Match]:
    for directive in job.request.directives:
        known = _KNOWN.search(directive.value)
        if known is None or directive.name in ("v", "export", "wrap"):
            continue
        if job.scheduler != "slurm" and known.group(1).startswith("PBS_JOB"):
            continue  # some versions put the number of the job in
        yield Match(
            job.document,
            directive.value_span,
            f"{known.group(1)} is not expanded here: a directive is a comment, which no shell reads.",
            severity=None if job.scheduler == "slurm" else Severity.NOTE,
        )


RULE = Rule(
    code="RK186",
    name="directive-variable",
    severity=Severity.WARNING,
    confidence=Confidence.LIKELY,
    what="A directive holds a variable of the shell.",
    why="SLURM takes the text as it stands: the log goes to a file or folder named $HOME, or the job is refused. "
    "Torque expands a few variables in the paths of logs, OpenPBS none.",
    fix="Write the value, or SLURM's patterns (%x name, %j number, %u user), or give the option to sbatch or qsub.",
    find=find,
    fires=(
        """#!/bin/bash
#SBATCH --nodes=1 --output=$HOME/logs/train.out
python train.py
""",
        """#!/bin/bash
#PBS -l select=1:ngpus=1
#PBS -o output_${PBS_NUM_NODES}.log
cd "$PBS_O_WORKDIR"
python train.py
""",
    ),
    silent=(
        """#!/bin/bash
#SBATCH --nodes=$NODES --output=%x-%j.out
python train.py
""",
        """#!/bin/bash
#PBS -l select=1:ngpus=1
#PBS -v DATA=$HOME/data
cd "$PBS_O_WORKDIR"
python train.py
""",
    ),
)
