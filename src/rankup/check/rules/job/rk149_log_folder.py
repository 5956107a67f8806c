"""A log in a folder that is not there when the job starts."""

from __future__ import annotations

import re
from collections.abc import Iterator

from rankup.check.facts.job.job import Job
from rankup.check.rule import Match, Rule
from rankup.findings.finding import Confidence, Severity

#: An absolute path, or one that nobody knows.
_ELSEWHERE = re.compile(r"^[/~]|[<>{}$`]")


def find(job: Job) -> Iterator[Match]:
    if job.scheduler not in ("slurm", "pbs", "torque"):
        return
    for name in ("output", "error", "o", "e"):
        directive = job.request.by_name.get(name)
        folder = directive.value.rpartition("/")[0].removeprefix("./") if directive is not None else ""
        if directive is None or not folder or folder.startswith(".."):
            continue
        if _is_made(job, folder):
            why = f"The log goes to {folder}/, which this script makes only after the scheduler has opened the log."
        elif (
            _ELSEWHERE.search(folder)
            or job.list_folder(folder) is not None
            or (job.submitter is not None and _is_made(job.submitter, folder))
        ):
            continue
        else:
            why = f"The log goes to {folder}/, which is not there yet."
        yield Match(job.document, directive.span, why)
        return


def _is_made(job: Job, folder: str) -> bool:
    made = (arg for command in job.named("mkdir") if command.shell.step is None for arg in command.args)
    return folder in [(arg or "").removeprefix("./").rstrip("/") for arg in made]


RULE = Rule(
    code="RK149",
    name="log-folder",
    severity=Severity.NOTE,
    confidence=Confidence.LIKELY,
    what="The folder of the log is made by the job script itself, or by nobody.",
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
        """--- job.sh
#!/bin/bash
#SBATCH --output=logs/%x-%j.out
mkdir -p checkpoints
python train.py
--- logs/README.md
What jobs print.
""",
        """#!/bin/bash
#SBATCH --output=%x-%j.out
mkdir -p logs
python train.py
""",
    ),
)
