"""srun of SLURM 22.05 and 23.02, which forgets --cpus-per-task."""

from __future__ import annotations

import re
from collections.abc import Iterator

from rankup.check.document import Span
from rankup.check.facts.job import Job
from rankup.check.rule import Edit, Match, Rule, Safety
from rankup.findings.finding import Confidence, Severity

_VERSION = re.compile(r"slurm/(22\.05|22\.11|23\.02)")


def find(job: Job) -> Iterator[Match]:
    directive = job.request.get("cpus-per-task")
    version = _version(job)
    if directive is None or version is None or (directive.number or 2) < 2:
        return
    if "SRUN_CPUS_PER_TASK" in job.names:
        return
    seen: set[Span] = set()
    for launch in job.launches:
        step = launch.step
        if step is None or step.kind != "srun" or "cpus-per-task" in step.options or step.span in seen:
            continue
        seen.add(step.span)
        at = step.span.start
        written = job.document.text.startswith("srun ", at)
        yield Match(
            job.document,
            step.span,
            f"srun of SLURM {version} does not pass on --cpus-per-task={directive.value}: each task gets one core.",
            (Edit(Span(at + 4, at + 4), ' -c "$SLURM_CPUS_PER_TASK"'),) if written else (),
        )


def _version(job: Job) -> str | None:
    """SLURM's version, where the script loads it as a module."""
    for command in job.named("module", "ml"):
        for word in command.args:
            match = _VERSION.match(word or "")
            if match:
                return match.group(1)
    return None


RULE = Rule(
    code="RK110",
    name="srun-cpus-lost",
    severity=Severity.WARNING,
    confidence=Confidence.LIKELY,
    what="A job for SLURM 22.05 to 23.02 sets --cpus-per-task, and calls srun without -c.",
    why="These versions ignore the job's value in srun (reproduced on 22.05.8; reframe#2655): data loaders starve.",
    fix='Write srun -c "$SLURM_CPUS_PER_TASK", which is right in all versions.',
    find=find,
    safety=Safety.UNSAFE,
    fires=(
        """#!/bin/bash
#SBATCH --nodes=1 --ntasks-per-node=4 --cpus-per-task=8
module load slurm/22.05.8 cuda
srun python train.py
""",
        """#!/bin/bash
#SBATCH -N 2 --ntasks-per-node=1 -c 32
ml slurm/23.02
srun torchrun --nnodes=2 --nproc_per_node=4 --rdzv_backend=c10d --rdzv_endpoint=$HEAD:29500 train.py
""",
    ),
    silent=(
        """#!/bin/bash
#SBATCH --nodes=1 --ntasks-per-node=4 --cpus-per-task=8
srun python train.py
""",
        """#!/bin/bash
#SBATCH --nodes=1 --ntasks-per-node=4 --cpus-per-task=8
module load slurm/22.05.8
srun --cpus-per-task=$SLURM_CPUS_PER_TASK python train.py
""",
    ),
)
