"""A signal that never reaches who waits for it."""

from __future__ import annotations

from collections.abc import Iterator

from rankup.check.document import Span
from rankup.check.facts.job import Job
from rankup.check.facts.job_signals import batch_signal, traps
from rankup.check.rule import Edit, Match, Rule, Safety
from rankup.findings.finding import Confidence, Severity


def find(job: Job) -> Iterator[Match]:
    signal = batch_signal(job)
    if signal is None or signal.to_batch or not job.complete or not job.commands:
        return
    start = signal.value_start
    handlers = traps(job, signal.name)
    edits = (Edit(Span(start, start), "B:"),) if job.document[signal.span].count(signal.value) == 1 else ()
    if handlers:
        yield Match(
            job.document,
            handlers[-1].span,
            f"--signal={signal.value} reaches the steps only, so this trap of the batch script never runs.",
            edits,
        )
    elif (
        not any(command.step is not None or command.opaque for command in job.commands)
        and not job.starts_unknown
    ):
        yield Match(
            job.document,
            signal.span,
            f"--signal={signal.value} reaches steps only, and this job starts none: nobody gets it.",
        )


RULE = Rule(
    code="RK129",
    name="signal-missed",
    severity=Severity.WARNING,
    confidence=Confidence.SURE,
    what="The directive --signal without B: in a job whose batch script, or no step at all, waits for the signal.",
    why="Without `B:` SLURM signals the job's steps (srun), never the batch shell (reproduced on SLURM 22.05).",
    fix="Write --signal=B:USR1@300 for a trap in the script, or start the program with srun.",
    find=find,
    safety=Safety.UNSAFE,
    fires=(
        """#!/bin/bash
#SBATCH --signal=USR1@300
trap 'touch STOP' USR1
srun python train.py &
wait
""",
        """#!/bin/bash
#SBATCH --nodes=1 --signal=SIGUSR1@90
trap 'scontrol requeue "$SLURM_JOB_ID"' SIGUSR1
python train.py & wait $!
""",
    ),
    silent=(
        """#!/bin/bash
#SBATCH --signal=SIGUSR1@90
srun python lightning_train.py
""",
        """#!/bin/bash
#SBATCH --signal=B:USR1@300
trap 'touch STOP' USR1
srun python train.py &
wait
""",
    ),
)
