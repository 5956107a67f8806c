"""The job's own arguments, handed on without quotes."""

from __future__ import annotations

from collections.abc import Iterator

from rankup.check.document import Span
from rankup.check.facts.job.commands import Command, Variable
from rankup.check.facts.job.job import Job, Launch
from rankup.check.rule import Match, Rule
from rankup.findings.finding import Confidence, Severity


def find(job: Job) -> Iterator[Match]:
    for launch in job.launches:
        span = _place(launch)
        if span is not None:
            yield Match(job.document, span, "An argument with a blank becomes two: $@ is not quoted here.")
            return


def _place(launch: Launch) -> Span | None:
    """Where ``$@`` is split on the way to a program: without quotes, or inside of a longer text."""
    command: Command | None = launch.command
    while command is not None:
        for word in command.argv:
            for atom in word.atoms:
                split = isinstance(atom, Variable) and atom.name in ("@", "*")
                if split and (not atom.quoted or len(word.atoms) > 1):
                    return atom.span
        command = command.parent
    return None


RULE = Rule(
    code="RK182",
    name="split-arguments",
    severity=Severity.NOTE,
    confidence=Confidence.SURE,
    what="A script hands $@ on without quotes, or inside of a longer text.",
    why="Arguments with blanks, quotes or * reach the program in pieces; in a text for bash -c each of them is read as "
    "shell code once more.",
    fix='Write "$@" as a word of its own; for bash -c: bash -c \'exec python train.py "$@"\' bash "$@".',
    find=find,
    fires=(
        """#!/bin/bash
#SBATCH --nodes=1 --gpus-per-node=1
srun python train.py --epochs 3 $@
""",
        """#!/bin/bash
#SBATCH --nodes=2 --ntasks-per-node=1
srun bash -c "python train.py $@"
""",
    ),
    silent=(
        """#!/bin/bash
#SBATCH --nodes=1 --gpus-per-node=1
srun python train.py --epochs 3 "$@"
""",
        """#!/bin/bash
#SBATCH --nodes=1 --gpus-per-node=1
echo arguments: $@
srun python train.py
""",
    ),
)
