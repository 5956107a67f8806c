"""All tasks of an array write one log."""

from __future__ import annotations

import re
from collections.abc import Iterator

from rankup.check.facts.job.job import Job
from rankup.check.rule import Edit, Match, Rule, Safety
from rankup.findings.finding import Confidence, Severity

# %j is the job id of the task, which differs among the tasks of an array; %A is that of the whole array.
_OF_TASK = re.compile(r"%\d*[aj]")


def find(job: Job) -> Iterator[Match]:
    array = job.request.get("array")
    if job.scheduler != "slurm" or array is None or not re.search(r"\d[-,]\d", array.value):
        return
    logs = [output for name in ("output", "error") if (output := job.request.get(name)) is not None]
    shared = [output for output in logs if not _is_of_task(output.value)]
    if shared:
        names = " and ".join(dict.fromkeys(output.value for output in shared))
        edits = [Edit(output.value_span, _with_task(output.value)) for output in shared]
        message = f"All tasks of the array {array.value} write {names}."
        yield Match(job.document, shared[0].span, message, tuple(edits))


def _is_of_task(path: str) -> bool:
    """Whether each task has a file of its own, as far as the name tells."""
    return bool(re.search(r"[<>{}$]|^/dev/", path) or _OF_TASK.search(path.replace("%%", "")))


def _with_task(path: str) -> str:
    stem, dot, end = path.rpartition(".")
    return f"{stem}_%a.{end}" if dot and "/" not in end else f"{path}_%a"


RULE = Rule(
    code="RK169",
    name="array-one-log",
    severity=Severity.WARNING,
    confidence=Confidence.SURE,
    what="The tasks of a job array write one and the same log.",
    why="A task that begins empties the file (--open-mode=truncate, the default), and tasks that run at the same time "
    "write over each other's lines.",
    fix="Put %a, the number of the task, into the name: --output=%A_%a.out.",
    find=find,
    safety=Safety.UNSAFE,
    fires=(
        """#!/bin/bash
#SBATCH --array=0-11
#SBATCH --output=logs/sweep.out
#SBATCH --error=logs/sweep.err
python sweep.py
""",
        """#!/bin/bash
#SBATCH --array=1,3,5%2
#SBATCH --output=sweep_%A.out
python sweep.py
""",
    ),
    silent=(
        """#!/bin/bash
#SBATCH --array=0-11
#SBATCH --output=logs/%A_%a.out
python sweep.py
""",
        """#!/bin/bash
#SBATCH --array=0-11
#SBATCH --output=logs/%x-%j.out
python sweep.py
""",
    ),
)
