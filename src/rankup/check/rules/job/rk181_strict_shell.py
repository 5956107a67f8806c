"""Commands that fail under `set -e` or `set -u`."""

from __future__ import annotations

from collections.abc import Iterator

from rankup.check.facts.job.job import Job
from rankup.check.facts.job.questions import activated
from rankup.check.rule import Match, Rule
from rankup.findings.finding import Confidence, Severity

#: They need a terminal's TERM, which a job may not have.
_OF_TERMINALS = ("clear", "tput", "reset", "stty")


def find(job: Job) -> Iterator[Match]:
    if not job.scheduler:
        return
    for command in job.commands:
        if command.in_output or command.conditional or command.shell.step is not None or command.answered:
            continue
        if command.exits_on_error and command.name in _OF_TERMINALS:
            message = f"`{command.name}` fails where TERM is not set, and `set -e` ends the job then."
            yield Match(job.document, command.span, message)
        elif command.nounset and activated(command) == "conda":
            message = (
                "conda's activation reads variables that may not be set, and `set -u` ends the job then."
            )
            yield Match(job.document, command.span, message)


RULE = Rule(
    code="RK181",
    name="strict-shell",
    severity=Severity.NOTE,
    confidence=Confidence.LIKELY,
    what="A command stands under `set -e` or `set -u` that often fails there.",
    why="Commands for a terminal need TERM, which the job gets only from the shell that submits it. The activation "
    "scripts of many conda packages (compilers, MKL, CUDA) read variables that nobody has set: 'unbound variable'.",
    fix="Remove the command for the terminal. Write `set +u` before conda activate, and `set -u` after it.",
    find=find,
    fires=(
        """#!/bin/bash
#SBATCH --nodes=1 --gpus-per-node=4
set -x -e
clear
torchrun --standalone --nproc_per_node=4 train.py
""",
        """#!/bin/bash
#SBATCH --nodes=1 --gpus-per-node=1
set -euo pipefail
source /opt/conda/etc/profile.d/conda.sh
conda activate torch
python train.py
""",
    ),
    silent=(
        """#!/bin/bash
#SBATCH --nodes=1 --gpus-per-node=1
set -euo pipefail
clear || true
set +u
conda activate torch
set -u
python train.py
""",
        """#!/bin/bash
#SBATCH --nodes=1 --gpus-per-node=1
set -o pipefail
clear
conda activate torch
python train.py
""",
    ),
)
