"""--requeue in the hope that it requeues a job at its time limit."""

from __future__ import annotations

from collections.abc import Iterator

from rankup.check.facts.job import Job
from rankup.check.facts.job_signals import batch_signal, requeues_itself, traps
from rankup.check.rule import Match, Rule
from rankup.findings.finding import Confidence, Severity


def find(job: Job) -> Iterator[Match]:
    directive = job.request.get("requeue")
    signal = batch_signal(job)
    if directive is None or signal is None or not signal.to_batch or not job.complete or job.sources_files:
        return
    if not traps(job, signal.name) or requeues_itself(job) or job.starts_unknown:
        return
    yield Match(
        job.document,
        directive.span,
        "The script prepares for its time limit, but --requeue alone does not start the job again after it.",
    )


RULE = Rule(
    code="RK130",
    name="requeue-at-time-limit",
    severity=Severity.WARNING,
    confidence=Confidence.LIKELY,
    what="A job with --requeue and a signal before its time limit, which never calls scontrol requeue.",
    why="SLURM requeues a job by itself after a preemption or a node failure, never after its time limit.",
    fix='Call scontrol requeue "$SLURM_JOB_ID" after the program has saved and ended.',
    find=find,
    fires=(
        """#!/bin/bash
#SBATCH --requeue --open-mode=append --signal=B:USR1@300
trap 'touch STOP' USR1
srun python train.py &
wait $!
""",
        """#!/bin/bash
#SBATCH --requeue
#SBATCH --open-mode=append
#SBATCH --signal=B:SIGUSR1@120
save() { kill -USR1 "$pid"; wait "$pid"; }
trap save SIGUSR1
python train.py & pid=$!
wait $pid
""",
    ),
    silent=(
        """#!/bin/bash
#SBATCH --requeue --open-mode=append --signal=B:USR1@300
trap 'touch STOP' USR1
srun python train.py & pid=$!
while wait $pid; kill -0 $pid 2>/dev/null; do :; done
[ -e STOP ] && scontrol requeue "$SLURM_JOB_ID"
""",
        """#!/bin/bash
#SBATCH --requeue --open-mode=append
srun python train.py
""",
    ),
)
