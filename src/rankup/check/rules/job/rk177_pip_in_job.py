"""A job that installs packages."""

from __future__ import annotations

from collections.abc import Iterator

from rankup.check.facts.job.job import Job
from rankup.check.rule import Match, Rule
from rankup.findings.finding import Confidence, Severity


def find(job: Job) -> Iterator[Match]:
    words = [word.text for command in job.commands for word in command.argv]
    if not job.scheduler or any(
        "SLURM_TMPDIR" in word or "virtualenv" in word or "venv" in word for word in words
    ):
        return  # an environment of the job's own
    for command in job.commands:
        args = [arg or "" for arg in command.args]
        by_module = command.name.startswith("python") and args[:2] == ["-m", "pip"]
        if (by_module or command.name in ("pip", "pip3")) and "install" in args:
            yield Match(job.document, command.span, "The job changes the environment that it runs in.")
            return


RULE = Rule(
    code="RK177",
    name="pip-in-job",
    severity=Severity.NOTE,
    confidence=Confidence.SURE,
    what="A job script installs packages by pip.",
    why="It runs again in each job, while others use the environment; many nodes have no way to the network; and what "
    "was installed last week may be another version today.",
    fix="Install before you submit, or make an environment of the job's own on its node.",
    find=find,
    fires=(
        """#!/bin/bash
#SBATCH --nodes=1 --gpus-per-node=1
pip install tqdm
python train.py
""",
        """#!/bin/bash
#PBS -l select=1:ngpus=4
cd "$PBS_O_WORKDIR"
python -m pip install --user .
torchrun --standalone --nproc_per_node=4 train.py
""",
    ),
    silent=(
        """#!/bin/bash
#SBATCH --nodes=1 --gpus-per-node=1
virtualenv --no-download $SLURM_TMPDIR/env
source $SLURM_TMPDIR/env/bin/activate
pip install --no-index torch
python train.py
""",
        """#!/bin/bash
# before the first job
pip install tqdm
""",
    ),
)
