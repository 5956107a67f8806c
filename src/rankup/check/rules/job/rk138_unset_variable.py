"""A variable that nobody sets, by the name of one that somebody sets."""

from __future__ import annotations

import re
from collections.abc import Iterator

from rankup.check.facts.job.environment import SLURM_VARIABLES
from rankup.check.facts.job.job import Job
from rankup.check.facts.job.typos import is_like
from rankup.check.rule import Edit, Match, Rule, Safety
from rankup.findings.finding import Confidence, Severity

#: What a user's shell sets, or the site.
_OF_THE_USER = frozenset(
    {
        "SCRATCH", "PROJECT", "PROJECTS", "WORKDIR", "WORKSPACE", "HOSTNAME", "USERNAME", "LOGNAME", "TMPDIR",
        "DATADIR", "HOMEDIR", "CONDA_PREFIX", "VIRTUAL_ENV", "PYTHONPATH", "LIBRARY_PATH", "LD_LIBRARY_PATH",
        "CUDA_HOME", "HF_HOME",
    }
)  # fmt: skip


def find(job: Job) -> Iterator[Match]:
    if not job.scheduler or job.sources_files or not job.complete:
        return
    seen: set[str] = set()
    for variable in job.expansions:
        name = variable.name
        if (
            name in seen
            or name in job.assigned
            or name in job.names
            or variable.operator
            or name in job.tested
            or not re.fullmatch(r"[A-Za-z_]\w+", name)
        ):
            continue
        shown = job.document[variable.span]
        meant = _meant(job, name)
        if meant is None or name not in shown:  # <word>: a word to fill in
            continue
        seen.add(name)
        edits = (Edit(variable.span, shown.replace(name, meant)),)
        yield Match(job.document, variable.span, f"{name} is never set; {meant} was meant.", edits)


def _meant(job: Job, name: str) -> str | None:
    if name.startswith("SLURM_"):
        if name in SLURM_VARIABLES:
            return None
        like = [known for known in SLURM_VARIABLES if known.replace("_", "") == name.replace("_", "")]
        like = like or [known for known in SLURM_VARIABLES if is_like(name, known)]
        if len(like) != 1:
            return None
        # There are more variables of these families than this table knows: there only a spelling of a long name counts.
        many = name.startswith(("SLURM_JOB_", "SLURM_STEP_", "SLURM_ARRAY_", "SLURM_CLUSTER"))
        return like[0] if not many or (len(name) >= 15 and name[-1] == like[0][-1]) else None
    if name in _OF_THE_USER:
        return None
    like = [known for known, bindings in job.assigned.items() if is_like(name, known) and bindings]
    if len(like) != 1 or any(
        known.name == name for binding in job.assigned[like[0]] for known in binding.value.variables()
    ):
        return None  # DATA="$data": who submits the job sets it, or the scheduler
    return like[0]


RULE = Rule(
    code="RK138",
    name="unset-variable",
    severity=Severity.WARNING,
    confidence=Confidence.LIKELY,
    what="A variable is used that is never set, while one of nearly the same name is set (or is SLURM's).",
    why="Bash expands it to nothing, without a message.",
    fix="Correct the name; `set -u` makes bash stop at such a variable.",
    find=find,
    safety=Safety.UNSAFE,
    fires=(
        """#!/bin/bash
#SBATCH --nodes=2 --ntasks-per-node=1
export MASTER_ADDR=$(scontrol show hostnames $SLURM_JOB_NODLIST | head -n 1)
srun python train.py
""",
        """#!/bin/bash
#SBATCH --nodes=2 --ntasks-per-node=1
MASTER_ADDR=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)
srun torchrun --nnodes=2 --rdzv_backend=c10d --rdzv_endpoint=$MASTER_ADR:29500 train.py
""",
    ),
    silent=(
        """#!/bin/bash
#PBS -l select=1:ncpus=4
export PBS_JOB_ID="${PBS_JOBID/.pbs/}"
python train.py > "$PBS_JOBID.log"
""",
        """#!/bin/bash
#SBATCH --nodes=1
PROJECT1=/scratch/me
cd $PROJECT
srun python train.py
""",
        """#!/bin/bash
#SBATCH --nodes=2 --ntasks-per-node=1
echo "$SLURM_JOB_NODELISTS $SLURM_JOB_UIDS"
srun python train.py
""",
    ),
)
