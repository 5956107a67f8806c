"""A launcher that another scheduler has."""

from __future__ import annotations

from collections.abc import Iterator

from rankup.check.facts.job.job import Job
from rankup.check.rule import Match, Rule
from rankup.findings.finding import Confidence, Severity

#: Launcher → whose it is, and the schedulers with which it is certainly not there.
_OTHERS = {
    "srun": ("SLURM", ("pbs", "torque", "lsf")),
    "pbsdsh": ("PBS", ("slurm", "lsf")),
    "pbs_tmrsh": ("PBS", ("slurm", "lsf")),
    "blaunch": ("LSF", ("slurm", "pbs", "torque")),
    "jsrun": ("LSF", ("slurm", "pbs", "torque")),
    "aprun": ("ALPS, of Cray machines before 2021", ("slurm", "pbs", "lsf")),
}


def find(job: Job) -> Iterator[Match]:
    if job.sources_files:
        return
    seen: set[str] = set()
    for command in job.steps:
        whose, missing = _OTHERS.get(command.name, ("", ()))
        if job.scheduler not in missing or command.conditional or command.name in job.functions | seen:
            continue
        seen.add(command.name)
        yield Match(
            job.document,
            command.span,
            f"{command.name} is a command of {whose}, which this job's machine most likely does not have.",
            severity=Severity.NOTE if command.name == "aprun" else None,
        )


RULE = Rule(
    code="RK187",
    name="foreign-launcher",
    severity=Severity.WARNING,
    confidence=Confidence.LIKELY,
    what="A job script starts its program by the launcher of another scheduler.",
    why="The command is not found, or it knows nothing of the nodes of this job.",
    fix="Use the launcher of this scheduler: srun (SLURM), mpiexec or pbsdsh (PBS), blaunch (LSF).",
    find=find,
    fires=(
        """#!/bin/bash
#PBS -l select=2:ncpus=8:ngpus=4
cd "$PBS_O_WORKDIR"
srun python train.py
""",
        """#!/bin/bash
#PBS -l select=8:system=gpu
cd "$PBS_O_WORKDIR"
aprun -n 32 -N 4 python train.py
""",
    ),
    silent=(
        """#!/bin/bash
#PBS -l select=2:ncpus=8:ngpus=4
cd "$PBS_O_WORKDIR"
mpiexec -n 8 --ppn 4 python train.py
""",
        """#!/bin/bash
#PBS -l select=2:ncpus=8:ngpus=4
if [ -n "$SLURM_JOB_ID" ]; then
  srun python train.py
else
  mpiexec -n 8 --ppn 4 python train.py
fi
""",
    ),
)
