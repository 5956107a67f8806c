"""--signal=B:… in a job whose batch shell does not handle the signal."""

from __future__ import annotations

from collections.abc import Iterator

from rankup.check.facts.job.job import Job
from rankup.check.facts.job.signals import batch_signal, execs_the_program, traps
from rankup.check.rule import Match, Rule
from rankup.findings.finding import Confidence, Severity


def find(job: Job) -> Iterator[Match]:
    signal = batch_signal(job)
    if signal is None or not signal.to_batch or not job.complete or job.sources_files:
        return
    if traps(job, signal.name) or execs_the_program(job) or job.language != "bash" or not job.commands:
        return
    yield Match(
        job.document,
        signal.span,
        f"The batch shell gets SIG{signal.name} and has no trap for it: the job ends then.",
        # Who asks for TERM may want just that: the job then ends early, with its steps.
        severity=Severity.WARNING if signal.name in ("TERM", "INT", "HUP") else None,
        confidence=Confidence.LIKELY if signal.name in ("TERM", "INT", "HUP") else None,
    )


RULE = Rule(
    code="RK127",
    name="signal-without-trap",
    severity=Severity.ERROR,
    confidence=Confidence.SURE,
    what="The directive --signal=B:… sends a signal to a batch script that has no trap for it.",
    why="The signal ends a shell that does not handle it, and with it the job, before its time limit (SLURM 22.05).",
    fix="Add a trap, start the program in the background and wait for it; or start the program with exec.",
    find=find,
    fires=(
        """#!/bin/bash
#SBATCH --nodes=1 --gres=gpu:1 --time=2:00:00
#SBATCH --signal=B:USR1@300
python train.py
""",
        """#!/bin/bash
#SBATCH --signal=B:SIGUSR1@120
trap 'echo cancelled' TERM
srun python train.py &
wait
""",
    ),
    silent=(
        """#!/bin/bash
#SBATCH --signal=B:USR1@300
trap 'touch STOP' USR1
srun python train.py & pid=$!
while wait $pid; kill -0 $pid 2>/dev/null; do :; done
""",
        """#!/bin/bash
#SBATCH --signal=B:USR1@300
exec python train.py
""",
    ),
)
