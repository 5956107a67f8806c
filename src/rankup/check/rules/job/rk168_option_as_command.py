"""A line of options that continues nothing."""

from __future__ import annotations

from collections.abc import Iterator

from rankup.check.document import Span
from rankup.check.facts.job.job import Job
from rankup.check.rule import Match, Rule
from rankup.findings.finding import Confidence, Severity


def find(job: Job) -> Iterator[Match]:
    if job.language in ("csh", "tcsh", "python") or not job.document.complete:
        return
    for command in job.commands:
        text = job.document.text[command.span.start : command.span.end]
        line = job.document.line_of(command.span.start)
        if not text.startswith("--") or command.function or not line:
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
srun torchrun --nnodes=2 \\
    --nproc_per_node=4 train.py
""",
        """#!/bin/bash
#SBATCH --nodes=2
OPTIONS="--nnodes=2
--nproc_per_node=4"
srun torchrun $OPTIONS train.py
""",
        """#!/bin/bash
#SBATCH --nodes=2
OPTIONS=(
    --nnodes=2
    --nproc_per_node=4
)
srun torchrun "${OPTIONS[@]}" train.py
""",
        """#!/bin/bash
#SBATCH --nodes=2
cat > options <<END
--nnodes=2
END
srun torchrun $(cat options) train.py
""",
    ),
)
