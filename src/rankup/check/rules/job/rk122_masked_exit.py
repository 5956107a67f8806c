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
    masked = list(dict.fromkeys(command for launch in job.launches for command in _masked(launch.command)))
    if not masked:
        return
    command = next((one for one in masked if _counts(job, one)), masked[0])
    hidden = not _counts(job, command)
    start = statement_start(job.document, command.span)
    written = not command.function and command.shell.step is None and job.document[command.argv[0].span] != ""
    more = f" ({len(masked) - 1} more like this)" * (len(masked) > 1)
    yield Match(
        job.document,
        command.span,
        f"The exit code of the training is lost: the shell sees that of {command.pipe[-1]}{more}.",
        (Edit(Span(start, start), "set -o pipefail\n"),) if written else (),
        severity=Severity.NOTE if hidden else None,
        fix="Write `set -eo pipefail` before it: the commands after it hide its exit code too."
        if hidden
        else None,
    )


def _masked(started: Command) -> Iterator[Command]:
    """The command of a pipeline that starts a program, if the pipeline ends with a filter's exit code."""
    command: Command | None = started
    while command is not None and not command.pipe:
        command = command.parent
    if command is None or command.pipefail or command.in_output or command.background:
        return
    step = command.shell.step
    if command.pipe[-1] in _FILTERS and (step is None or step.kind != "ssh"):
        yield command


def _counts(job: Job, command: Command) -> bool:
    """Whether somebody looks at the exit code: the shell by set -e, or the scheduler, since nothing follows it."""
    if command.exits_on_error or command.shell.step is not None:
        return True
    if command.function:
        return False
    holder = job.document.part(command.span)[0]
    after = [
        other
        for other in job.commands
        if other.span.start > command.span.start
        and not (other.parent or other.in_output or other.function)
        and job.document.part(other.span)[0] is holder
    ]
    return len(after) <= len(command.pipe)


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
