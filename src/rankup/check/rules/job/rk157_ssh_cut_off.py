"""A remote command of which only the first part is remote."""

from __future__ import annotations

from collections.abc import Iterator

from rankup.check.facts.job import Job
from rankup.check.facts.job_commands import Command
from rankup.check.rule import Match, Rule
from rankup.findings.finding import Confidence, Severity

_PREPARE = ("cd", "source", ".", "export", "module", "conda")


def find(job: Job) -> Iterator[Match]:
    for index, command in enumerate(job.commands):
        step = command.step
        if step is None or step.kind not in ("ssh", "pdsh", "blaunch", "pbs_tmrsh") or command.in_output:
            continue
        inner = [other for other in job.commands[index + 1 :] if other.parent is command]
        if len(inner) != 1 or inner[0].name not in _PREPARE:
            continue
        following = _next(job, index, command)
        if following is not None:
            yield Match(
                job.document,
                command.span,
                f"{step.kind} runs only `{inner[0].name}` on the other node: {following} runs on this one.",
            )


def _next(job: Job, index: int, command: Command) -> str | None:
    """The program that comes right after it in the same loop or script, if it is one that should be remote."""
    for other in job.commands[index + 1 :]:
        if other.parent is not None or other.span.start < command.span.end:
            continue
        if other.in_loop != command.in_loop:
            return None
        if job.document.line_of(other.span.start) > job.document.line_of(command.span.end) + 1:
            return None
        for launch in job.launches:
            current: Command | None = launch.command
            while current is not None:
                if current is other:
                    return launch.launcher
                current = current.parent
    return None


RULE = Rule(
    code="RK157",
    name="ssh-cut-off",
    severity=Severity.ERROR,
    confidence=Confidence.SURE,
    what="A remote command without quotes ends at the first ; or &&, and what follows runs on this node.",
    why="The local shell splits the line before ssh sees it: all agents start on the first node.",
    fix='Quote the remote command: ssh "$host" "cd $PWD && torchrun …".',
    find=find,
    fires=(
        """#!/bin/bash
#SBATCH --nodes=2
for host in $(scontrol show hostnames "$SLURM_JOB_NODELIST"); do
  ssh $host cd $PWD; torchrun --nnodes=2 --rdzv_backend=c10d --rdzv_endpoint=$HOSTNAME:29500 train.py &
done
wait
""",
        """#!/bin/bash
#PBS -l select=2:ncpus=8:ngpus=1
cd "$PBS_O_WORKDIR"
for host in $(sort -u "$PBS_NODEFILE"); do
  ssh "$host" source ~/venv/bin/activate && python train.py &
done
wait
""",
    ),
    silent=(
        """#!/bin/bash
#SBATCH --nodes=2
for host in $(scontrol show hostnames "$SLURM_JOB_NODELIST"); do
  ssh $host "cd $PWD; torchrun --nnodes=2 --rdzv_backend=c10d --rdzv_endpoint=$HOSTNAME:29500 train.py" &
done
wait
""",
        """#!/bin/bash
#SBATCH --nodes=2
ssh login mkdir -p results
srun python train.py
""",
    ),
)
