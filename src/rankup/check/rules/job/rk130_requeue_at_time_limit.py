"""--requeue in the hope that it requeues a job at its time limit."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from rankup.check.facts.job.job import Job
from rankup.check.facts.job.signals import batch_signal, requeues_itself, traps
from rankup.check.rule import Match, Rule
from rankup.findings.finding import Confidence, Severity

_RESTARTS = re.compile(r"requeue['\"]|requeue \$|\bsbatch\b|[Rr]equeue\(")


def find(job: Job) -> Iterator[Match]:
    directive = job.request.get("requeue")
    signal = batch_signal(job)
    if directive is None or signal is None or not job.complete or job.sources_files:
        return
    if requeues_itself(job) or job.starts_unknown:
        return
    trapped = signal.to_batch and bool(traps(job, signal.name))
    if not trapped and not _ends_by_signal(job):
        return  # a program that is not here may requeue the job, as Lightning does
    yield Match(
        job.document,
        directive.span,
        "The script prepares for its time limit, but --requeue alone does not start the job again after it.",
        severity=Severity.NOTE if signal.to_batch and not trapped else None,  # RK127 says what happens first
    )


def _ends_by_signal(job: Job) -> bool:
    """Whether all programs are here, and none of them says how the job is requeued."""
    programs = [launch.program for launch in job.launches]
    return bool(programs) and all(
        program is not None
        and not program.frameworks
        and not any(_RESTARTS.search(ast.unparse(module.tree)) for module in program.modules)
        for program in programs
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
        """--- job.sh
#!/bin/bash
#SBATCH --requeue --open-mode=append --signal=INT@60
python train.py
--- train.py
import torch

print(torch.zeros(1))
""",
    ),
    silent=(
        """--- job.sh
#!/bin/bash
#SBATCH --requeue --open-mode=append --signal=USR1@300
srun python train.py
--- train.py
import os
import signal
import torch

signal.signal(signal.SIGUSR1, lambda *_: os.system("scontrol requeue $SLURM_JOB_ID"))
""",
        """#!/bin/bash
#SBATCH --requeue --open-mode=append --signal=B:USR1@300
trap 'touch STOP' USR1
srun python train.py & pid=$!
while wait $pid; kill -0 $pid 2>/dev/null; do :; done
[ -e STOP ] && scontrol requeue "$SLURM_JOB_ID"
""",
    ),
)
