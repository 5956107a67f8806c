"""The folder of the job script, as the running job sees it."""

from __future__ import annotations

from collections.abc import Iterator

from rankup.check.facts.job.job import Job
from rankup.check.rule import Match, Rule
from rankup.findings.finding import Confidence, Severity

_PATHS = ("dirname", "realpath", "readlink")
#: Who asks for one of these knows that the script also runs outside of a job, and takes another folder in it.
_OF_A_JOB = frozenset({"SLURM_JOB_ID", "SLURM_SUBMIT_DIR", "PBS_JOBID", "PBS_O_WORKDIR"})


def find(job: Job) -> Iterator[Match]:
    if (
        job.scheduler not in ("slurm", "pbs", "torque")
        or job.functions & {"usage"}
        or not _OF_A_JOB.isdisjoint(job.tested)
    ):
        return
    for command in job.commands:
        if (
            command.name not in _PATHS
            or not command.in_output
            or command.conditional
            or command.shell.step is not None
            or job.document.part(command.span)[0]
            is not job.document  # a script that the job runs has its own path
        ):
            continue
        for word in command.argv[1:]:
            for variable in word.variables():
                if variable.name.partition("[")[0] in ("0", "BASH_SOURCE") and not variable.operator:
                    yield Match(
                        job.document,
                        command.span,
                        f"In the job ${variable.name} is the scheduler's copy of this script, in its spool folder.",
                    )
                    return


RULE = Rule(
    code="RK145",
    name="script-in-spool",
    severity=Severity.WARNING,
    confidence=Confidence.SURE,
    what="A batch script looks for its own folder by $0 or BASH_SOURCE.",
    why="Schedulers run a copy (/var/spool/slurmd/job…/slurm_script): files beside the script are not found.",
    fix='Use "$SLURM_SUBMIT_DIR" (or "$PBS_O_WORKDIR"), the folder from which the job was submitted.',
    find=find,
    fires=(
        """#!/bin/bash
#SBATCH --nodes=1
cd "$(dirname "$0")"
python train.py
""",
        """#!/bin/bash
#SBATCH --nodes=1
HERE=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
python "$HERE/train.py"
""",
    ),
    silent=(
        """#!/bin/bash
#SBATCH --nodes=1
cd "${SLURM_SUBMIT_DIR:-$(dirname "$0")}"
python train.py
""",
        """#!/bin/bash
#SBATCH --nodes=1
HERE=$(dirname "$0")
if [ ! -z "$SLURM_SUBMIT_DIR" ]; then HERE=$SLURM_SUBMIT_DIR; fi
python "$HERE/train.py"
""",
        """#!/bin/bash
HERE=$(dirname "$0")
python "$HERE/train.py"
""",
    ),
)
