"""A trap that cannot run while the program does."""

from __future__ import annotations

from collections.abc import Iterator

from rankup.check.facts.job.job import Job
from rankup.check.facts.job.signals import batch_signal, in_background, requeue_commands, traps
from rankup.check.rule import Match, Rule
from rankup.findings.finding import Confidence, Severity


def find(job: Job) -> Iterator[Match]:
    signal = batch_signal(job)
    if not job.complete or job.scheduler != "slurm" or (signal is not None and not signal.to_batch):
        return
    names = [signal.name] if signal is not None else ["TERM", "USR1", "USR2"] if requeue_commands(job) else []
    handlers = [handler for name in names for handler in traps(job, name)]
    if not handlers or all(handler.argv[1].known == "" for handler in handlers):
        return
    running = [launch for launch in job.launches if not launch.command.in_output]
    if not running or any(in_background(launch.command) for launch in running):
        return
    line = job.document.line_name(job.document.line_of(running[-1].span.start) + 1)
    yield Match(
        job.document,
        handlers[-1].span,
        f"This trap runs only after the program in {line} has ended.",
    )


RULE = Rule(
    code="RK128",
    name="trap-in-foreground",
    severity=Severity.WARNING,
    confidence=Confidence.SURE,
    what="The batch script traps a signal before its end, but runs the program in the foreground.",
    why="Bash runs a trap only after the command in the foreground has ended: the time limit ends both.",
    fix="Start the program with & and wait for it: srun … & pid=$!; wait $pid.",
    find=find,
    fires=(
        """#!/bin/bash
#SBATCH --signal=B:USR1@300 --requeue --open-mode=append
trap 'scontrol requeue "$SLURM_JOB_ID"' USR1
srun python train.py
""",
        """#!/bin/bash
#SBATCH --gres=gpu:1 --open-mode=append
again() { scontrol requeue "$SLURM_JOB_ID"; }
trap again TERM
python train.py
""",
    ),
    silent=(
        """#!/bin/bash
#SBATCH --requeue --open-mode=append
again() { scontrol requeue "$SLURM_JOB_ID"; }
trap again TERM
python train.py & wait $!
""",
        """#!/bin/bash
#SBATCH --signal=B:USR1@300
trap 'touch STOP' USR1
srun python train.py &
wait $!
""",
    ),
)
