"""A training whose exit code is that of tee."""

from __future__ import annotations

from collections.abc import Iterator

from rankup.check.document import Span
from rankup.check.facts.job.commands import Command
from rankup.check.facts.job.job import Job
from rankup.check.facts.job.questions import statement_start
from rankup.check.rule import Edit, Match, Rule, Safety
from rankup.findings.finding import Confidence, Severity

_FILTERS = ("tee", "cat", "grep", "sed", "awk", "ts", "tail", "head", "stdbuf", "gzip")


def find(job: Job) -> Iterator[Match]:
    if not job.scheduler or any(variable.name.startswith("PIPESTATUS") for variable in job.expansions):
        return
    for launch in job.launches:
        command: Command | None = launch.command
        while command is not None and not command.pipe:
            command = command.parent
        if command is None or command.pipefail or command.in_output or command.background:
            continue
        if command.pipe[-1] not in _FILTERS:
            continue
        if command.shell.step is not None and command.shell.step.kind == "ssh":
            continue
        start = statement_start(job.document, command.span)
        written = not command.function and command.shell.step is None and job.document[_word(command)] != ""
        yield Match(
            job.document,
            command.span,
            f"The exit code of the training is lost: the shell sees that of {command.pipe[-1]}.",
            (Edit(Span(start, start), "set -o pipefail\n"),) if written else (),
        )


def _word(command: Command) -> Span:
    return command.argv[0].span


RULE = Rule(
    code="RK122",
    name="masked-exit",
    severity=Severity.WARNING,
    confidence=Confidence.SURE,
    what="The training is piped into tee (or another filter) without pipefail.",
    why="The exit code is that of the last command: a failed training ends as COMPLETED, and afterok jobs start.",
    fix="Write `set -o pipefail` before it, or let the scheduler write the log.",
    find=find,
    safety=Safety.UNSAFE,
    fires=(
        """#!/bin/bash
#SBATCH --nodes=1 --gres=gpu:4
torchrun --standalone --nproc_per_node=4 train.py 2>&1 | tee train.log
""",
        """#!/bin/bash
#SBATCH --nodes=2 --ntasks-per-node=4
srun \\
  python train.py | tee "log.$SLURM_JOB_ID"
""",
    ),
    silent=(
        """#!/bin/bash
#SBATCH --nodes=1 --gres=gpu:4
set -euo pipefail
torchrun --standalone --nproc_per_node=4 train.py 2>&1 | tee train.log
""",
        """#!/bin/bash
#SBATCH --nodes=1 --gres=gpu:4
torchrun --standalone --nproc_per_node=4 train.py 2>&1 | tee train.log
exit ${PIPESTATUS[0]}
""",
    ),
)
