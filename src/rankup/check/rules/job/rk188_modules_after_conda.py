"""Modules that are loaded over an environment."""

from __future__ import annotations

from collections.abc import Iterator

from rankup.check.facts.job.commands import Command
from rankup.check.facts.job.job import Job
from rankup.check.facts.job.questions import activated
from rankup.check.rule import Match, Rule
from rankup.findings.finding import Confidence, Severity


def find(job: Job) -> Iterator[Match]:
    if not job.scheduler:
        return
    active = False
    for command in job.commands:
        if command.in_output or command.conditional or command.shell.step is not None:
            continue
        args = [arg or "" for arg in command.args]
        if "deactivate" in (command.name, *args[:1]):
            active = False
        elif activated(command):
            active = True
        elif active and _loads(command, args):
            message = "This module is loaded after the environment, and its folders come first in PATH then."
            yield Match(job.document, command.span, message)
            return


def _loads(command: Command, args: list[str]) -> bool:
    if command.name == "ml":
        return bool(args)
    return command.name == "module" and args[:1] in (["load"], ["add"])


RULE = Rule(
    code="RK188",
    name="modules-after-conda",
    severity=Severity.NOTE,
    confidence=Confidence.LIKELY,
    what="A job loads modules after it has activated its Python environment.",
    why="A module puts its own programs and libraries (python, libstdc++, CUDA) before those of the environment.",
    fix="Load all modules first, and activate the environment last.",
    find=find,
    fires=(
        """#!/bin/bash
#SBATCH --nodes=1 --gpus-per-node=1
source /opt/conda/bin/activate
conda activate torch
module load gcc/12
python train.py
""",
        """#!/bin/bash
#PBS -l select=1:ngpus=1
source $HOME/venv/bin/activate
module load cuda/12.2
python train.py
""",
    ),
    silent=(
        """#!/bin/bash
#SBATCH --nodes=1 --gpus-per-node=1
module load gcc/12 cuda/12.2
source $HOME/venv/bin/activate
python train.py
""",
        """#!/bin/bash
#SBATCH --nodes=1 --gpus-per-node=1
conda activate prepare
python prepare.py
conda deactivate
module load cuda/12.2
python train.py
""",
    ),
)
