"""A relative path in a command that starts in the home directory of another node."""

from __future__ import annotations

from collections.abc import Iterator

from rankup.check.facts.job.commands import Command
from rankup.check.facts.job.job import Job, Launch
from rankup.check.rule import Match, Rule
from rankup.findings.finding import Confidence, Severity


def find(job: Job) -> Iterator[Match]:
    for launch in job.launches:
        step, target = launch.step, launch.target
        if step is None or step.kind not in ("ssh", "pbsdsh", "pdsh", "pbs_tmrsh") or target is None:
            continue
        known = target.known
        if (
            known is None
            or known.startswith(("/", "~"))
            or not known.endswith(".py")
            or _changes_folder(job, launch)
        ):
            continue
        yield Match(
            job.document,
            launch.span,
            f"{step.kind} starts in the home directory, where {known} is looked for.",
        )


def _changes_folder(job: Job, launch: Launch) -> bool:
    """Whether the same shell changes the folder, or a container does."""
    shell = launch.command.shell
    if shell.containers or "chdir" in (launch.step.options if launch.step else {}):
        return True
    return any(
        command.shell.step is launch.step
        and (command.name in ("cd", "pushd") or (command.name in ("source", ".") and not _activates(command)))
        for command in job.commands
    ) or any(command.shell.step is launch.step for command in job.starts_unknown)


def _activates(command: Command) -> bool:
    """Whether a sourced file is that of a virtual environment or of conda, which changes no folder."""
    return len(command.argv) > 1 and command.argv[1].tail.endswith(("activate", "conda.sh"))


RULE = Rule(
    code="RK158",
    name="ssh-home-folder",
    severity=Severity.WARNING,
    confidence=Confidence.LIKELY,
    what="A program is started by ssh or pbsdsh with a relative path, and nothing changes the folder before.",
    why="These start in the home directory, with none of the script's exports.",
    fix='Begin the remote command with cd "$PWD" &&, or use an absolute path.',
    find=find,
    fires=(
        """#!/bin/bash
#PBS -l select=2:ncpus=8:ngpus=1
cd "$PBS_O_WORKDIR"
for host in $(sort -u "$PBS_NODEFILE"); do
  ssh $host "source ~/venv/bin/activate && torchrun --nnodes=2 --rdzv_endpoint=$HOSTNAME:29500 train.py" &
done
wait
""",
        """#!/bin/bash
#SBATCH --nodes=2
for host in $(scontrol show hostnames "$SLURM_JOB_NODELIST"); do
  ssh $host "torchrun --nnodes=2 --rdzv_backend=c10d --rdzv_endpoint=$HOSTNAME:29500 train.py" &
done
wait
""",
    ),
    silent=(
        """#!/bin/bash
#SBATCH --nodes=2
for host in $(scontrol show hostnames "$SLURM_JOB_NODELIST"); do
  ssh $host "cd $PWD && torchrun --nnodes=2 --rdzv_backend=c10d --rdzv_endpoint=$HOSTNAME:29500 train.py" &
done
wait
""",
        """#!/bin/bash
#SBATCH --nodes=2 --ntasks-per-node=1
srun torchrun --nnodes=2 --rdzv_backend=c10d --rdzv_endpoint=$HOSTNAME:29500 train.py
""",
    ),
)
