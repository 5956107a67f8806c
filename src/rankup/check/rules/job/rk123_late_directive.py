"""Directives that the scheduler does not read."""

from __future__ import annotations

import re
from collections.abc import Iterator

from rankup.check.document import Span
from rankup.check.facts.job.directives import DirectiveLine
from rankup.check.facts.job.job import Job
from rankup.check.rule import Edit, Match, Rule, Safety
from rankup.findings.finding import Confidence, Severity

#: A line that somebody replaces by text, before the script is one: $HEADER, <%= header %>, %HEADER%.
_FILLED_IN = re.compile(r"[ \t]*(?:\$\{?(\w+)\}?[ \t]*$|<%|%\w+%)", re.M)
_HEAD = 3  # so many lines are the head of a script, not one that came too late


def find(job: Job) -> Iterator[Match]:
    if job.language != "bash" or job.broken or not job.document.complete or _is_part(job):
        return
    late = [
        line
        for line in job.lines
        if line.late
        and line.words
        and line.words[0][0].startswith("-")
        and line.scheduler in ("slurm", "pbs")
    ]
    if not late or _is_head_of_another(job, late):
        return
    document = job.document
    edits = []
    place = document.starts[document.line_of(job.first_command)]
    for line in late:
        number = document.line_of(line.span.start)
        start = document.starts[number]
        text = document.line(number)
        edits.append(Edit(Span(start, min(start + len(text) + 1, len(document.text))), ""))
    moved = "".join(document[line.span] + "\n" for line in late)
    count = len(late)
    yield Match(
        document,
        late[0].span,
        f"This directive stands after the first command, and is not read{f' ({count - 1} more follow)' * (count > 1)}.",
        (*edits, Edit(Span(place, place), moved)),
    )


def _is_part(job: Job) -> bool:
    """Whether this is a piece of a script: without the first line that sbatch asks for, or with words to fill in."""
    text = job.document.text
    if any(line.scheduler == "slurm" for line in job.lines) and not text.lstrip().startswith("#!"):
        return True
    first = _FILLED_IN.match(text, job.first_command)
    return first is not None and (first[1] or "") not in job.names


def _is_head_of_another(job: Job, late: list[DirectiveLine]) -> bool:
    """Whether they give again what the head gives: the file holds several job scripts, one below the other."""
    head = {_option(line) for line in job.lines if not line.late and line.words}
    return len(late) >= _HEAD and {_option(line) for line in late} <= head


def _option(line: DirectiveLine) -> str:
    return line.words[0][0].partition("=")[0]


RULE = Rule(
    code="RK123",
    name="late-directive",
    severity=Severity.ERROR,
    confidence=Confidence.SURE,
    what="A #SBATCH or #PBS line stands after the first command.",
    why="The scheduler stops at the first line that is not a comment. What follows is ignored without a message.",
    fix="Move all directives before the first command.",
    find=find,
    safety=Safety.UNSAFE,
    fires=(
        """#!/bin/bash
#SBATCH --nodes=1
module load cuda
#SBATCH --gres=gpu:4
#SBATCH --time=1:00:00
python train.py
""",
        """#!/bin/bash
set -e
#PBS -l select=1:ncpus=8:ngpus=1
cd "$PBS_O_WORKDIR"
python train.py
""",
    ),
    silent=(
        """#!/bin/bash
#SBATCH --nodes=1

# the GPUs
#SBATCH --gres=gpu:4
python train.py
""",
        """#!/bin/bash
for seed in 1 2 3; do
cat > job.sh <<EOF
#!/bin/bash
#SBATCH --nodes=1
python train.py --seed $seed
EOF
sbatch job.sh
done
""",
    ),
)
