"""A trap that requeues the job, in a job that gets no signal before its time limit."""

from __future__ import annotations

from collections.abc import Iterator

from rankup.check.facts.job.commands import Command
from rankup.check.facts.job.job import Job
from rankup.check.facts.job.signals import requeue_commands
from rankup.check.rule import Match, Rule
from rankup.findings.finding import Confidence, Severity


def find(job: Job) -> Iterator[Match]:
    if job.scheduler != "slurm" or not job.complete or job.request.get("signal") is not None:
        return
    for trap in {_trap_of(command): None for command in requeue_commands(job)}:
        if trap is not None and "EXIT" not in trap.args[1:]:
            names = " ".join(word or "?" for word in trap.args[1:])
            yield Match(
                job.document,
                trap.span,
                f"This trap for {names} requeues the job, and no --signal asks SLURM for one before the time limit.",
            )


def _trap_of(command: Command) -> Command | None:
    """The trap in whose handler a command runs."""
    current = command.parent
    while current is not None and current.name != "trap":
        current = current.parent
    return current


RULE = Rule(
    code="RK180",
    name="trap-without-signal",
    severity=Severity.WARNING,
    confidence=Confidence.LIKELY,
    what="A trap requeues the job, and the directives have no --signal.",
    why="Without it SLURM sends SIGTERM only at the time limit itself, seconds before SIGKILL (KillWait), and USR1 "
    "and USR2 never: there is no time to save.",
    fix="Add #SBATCH --signal=B:USR1@300 and trap that signal, or give --signal to sbatch.",
    find=find,
    fires=(
        """#!/bin/bash
#SBATCH --nodes=1 --gres=gpu:1 --time=24:00:00
again() { scontrol requeue "$SLURM_JOB_ID"; exit 0; }
trap again TERM
python train.py &
wait
""",
        """#!/bin/bash
#SBATCH --gres=gpu:1 --open-mode=append
trap 'scontrol requeue $SLURM_JOB_ID' USR1
srun python train.py &
wait
""",
    ),
    silent=(
        """#!/bin/bash
#SBATCH --gres=gpu:1 --open-mode=append --signal=B:USR1@300
trap 'scontrol requeue $SLURM_JOB_ID' USR1
srun python train.py &
wait
""",
        """#!/bin/bash
#SBATCH --gres=gpu:1
trap 'rm -rf "$TMPDIR/data"' EXIT
python train.py || scontrol requeue "$SLURM_JOB_ID"
""",
    ),
)
