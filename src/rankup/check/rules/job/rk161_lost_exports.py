"""A variable of the script in a shell on another node that does not get it."""

from __future__ import annotations

import re
from collections.abc import Iterator

from rankup.check.facts.job.commands import Value
from rankup.check.facts.job.job import Job, Launch
from rankup.check.rule import Match, Rule
from rankup.findings.finding import Confidence, Severity

_BRINGS_THEM = re.compile(r"\b(?:export|declare|typeset) -\w*p\b")  # a text that another shell reads
_REMOTE = ("ssh", "pbsdsh", "pbs_tmrsh", "pdsh")


def find(job: Job) -> Iterator[Match]:
    if _BRINGS_THEM.search(job.document.text):
        return
    seen: set[str] = set()
    for launch in job.launches:
        step = launch.step
        if step is None or step.kind not in _REMOTE or _reads_more(job, launch):
            continue
        for value in _values(launch):
            for variable in value.variables():
                name = variable.name
                if variable.shell.step is not step or variable.default is not None or name in seen:
                    continue
                before = [one for one in job.assigned.get(name, ()) if one.span.start < step.span.start]
                after = [one for one in job.assigned.get(name, ()) if one.span.start >= step.span.start]
                if before and not after:
                    seen.add(name)
                    yield Match(
                        job.document,
                        variable.span,
                        f"${name} is expanded on the other node, where {step.kind} does not bring it. "
                        "It is empty there.",
                    )


def _values(launch: Launch) -> Iterator[Value]:
    yield from launch.options.values()
    yield from launch.arguments
    if launch.target is not None:
        yield launch.target


def _reads_more(job: Job, launch: Launch) -> bool:
    """Whether the remote shell reads a file that may set the variable, or ssh is told to send it."""
    step = launch.step
    if step is not None and any("SendEnv" in value.text for value in step.options.values()):
        return True
    return any(
        command.name in ("source", ".")
        and command.shell.step is step
        and not command.argv[-1].tail.endswith("activate")
        for command in job.commands
    )


RULE = Rule(
    code="RK161",
    name="lost-exports",
    severity=Severity.ERROR,
    confidence=Confidence.LIKELY,
    what="A command for ssh or pbsdsh in single quotes uses a variable of the job script.",
    why="Neither takes the script's variables to the other node, exported or not (OpenPBS: only those of qsub -v).",
    fix="Use double quotes, so that this shell puts the value in.",
    find=find,
    fires=(
        """#!/bin/bash
#PBS -l select=2:ncpus=8:ngpus=1:mpiprocs=1
export MASTER_ADDR=$(hostname)
pbsdsh -- bash -c 'cd /home/me/p && torchrun --nnodes=2 --rdzv_backend=c10d --rdzv_endpoint=$MASTER_ADDR:1 train.py'
""",
        """#!/bin/bash
#SBATCH --nodes=2
head=$(hostname)
for host in $(scontrol show hostnames "$SLURM_JOB_NODELIST"); do
  ssh "$host" 'cd /home/me/project; torchrun --nnodes=2 --rdzv_backend=c10d --rdzv_endpoint=$head:29500 train.py' &
done
wait
""",
    ),
    silent=(
        """#!/bin/bash
#PBS -l select=2:ncpus=8:ngpus=1:mpiprocs=1
export MASTER_ADDR=$(hostname)
pbsdsh -- bash -c "cd /home/me/p && torchrun --nnodes=2 --rdzv_backend=c10d --rdzv_endpoint=$MASTER_ADDR:1 train.py"
""",
        """#!/bin/bash
#SBATCH --nodes=2 --ntasks-per-node=1
export MASTER_ADDR=$(hostname)
srun bash -c 'torchrun --nnodes=2 --rdzv_backend=c10d --rdzv_endpoint=$MASTER_ADDR:29500 train.py'
""",
    ),
)
