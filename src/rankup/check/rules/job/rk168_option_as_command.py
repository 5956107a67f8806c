"""A line of options that continues nothing."""

from __future__ import annotations

import re
from collections.abc import Iterator

from rankup.check.document import Span
from rankup.check.facts.job.commands import Command
from rankup.check.facts.job.job import Job
from rankup.check.rule import Match, Rule
from rankup.findings.finding import Confidence, Severity

_OPTION = re.compile(r"--[A-Za-z][\w-]*(=|\s|$)")


def _follows_options(job: Job, command: Command) -> bool:
    """Whether the command before it takes options, and nothing but comments and empty lines stands between."""
    before = [one for one in job.commands if one.span.end <= command.span.start and not one.in_output]
    if not before:
        return False
    last = max(before, key=lambda one: one.span.end)
    between = job.document.text[last.span.end : command.span.start]
    rest = (line.strip("\\ \t\r") for line in between.split("\n"))
    plain = all(not line or line.startswith("#") for line in rest)
    return plain and any(word.head.startswith("-") for word in last.argv)


def find(job: Job) -> Iterator[Match]:
    if job.language in ("csh", "tcsh", "python") or not job.document.complete:
        return
    for command in job.commands:
        text = job.document.text[command.span.start : command.span.end]
        line = job.document.line_of(command.span.start)
        if not _OPTION.match(text) or command.function or not line or not _follows_options(job, command):
            continue
        if job.document.line(line)[: command.span.start - job.document.starts[line]].strip():
            continue  # not at the start of its line
        before = job.document.line(line - 1).rstrip("\r\n")
        if before.rstrip().endswith("\\") and not before.lstrip().startswith("#"):
            continue  # blanks after it: RK136
        if not before.strip():
            why = "The line before it is empty: the command has ended there."
        elif before.lstrip().startswith("#"):
            why = "The line before it is a comment: the command has ended there, also if the comment ends with \\."
        elif re.search(r"\\\s+#", before):
            why = "A comment follows the \\ of the line before it, which then continues nothing."
        else:
            why = "The line before it does not end with \\."
        option = text.split()[0]
        yield Match(
            job.document,
            Span(command.span.start, command.span.start + len(option)),
            f"{option} is run as a command of its own.",
            why=f"{why} The program starts without these options, and then the shell says 'command not found'.",
        )


RULE = Rule(
    code="RK168",
    name="option-as-command",
    severity=Severity.ERROR,
    confidence=Confidence.SURE,
    what="A line begins with an option and continues no command: a backslash is missing, or a comment stands between.",
    why="A command ends with its line, unless the last character is a backslash. The program starts without the "
    "options, and the shell then says 'command not found'.",
    fix="End each line of the command but the last with \\, and put comments before it.",
    find=find,
    fires=(
        """#!/bin/bash
#SBATCH --nodes=2
srun torchrun --nnodes=2
    --nproc_per_node=4 train.py
""",
        """#!/bin/bash
#SBATCH --nodes=2
srun torchrun \\
    --nnodes=2 \\
    # --max_restarts=3 \\
    --nproc_per_node=4 train.py
""",
    ),
    silent=(
        """#!/bin/bash
#SBATCH --nodes=2
echo "options of the program:"
--nodes is the number of nodes
-- a comment of another language
srun python train.py
""",
        """#!/bin/bash
#SBATCH --nodes=2
srun torchrun --nnodes=2 \\
    --nproc_per_node=4 train.py
""",
    ),
)
