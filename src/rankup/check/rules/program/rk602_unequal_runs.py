"""Runs that are compared differ in more than their GPUs."""

from __future__ import annotations

import re
from collections.abc import Iterator

from rankup.check.document import Document, Span
from rankup.check.facts.program import Program
from rankup.check.facts.start import Start
from rankup.check.rule import Match, Rule
from rankup.findings.finding import Confidence, Severity

_PRECISION = re.compile(r"^--?(use[-_])?(amp|fp16|bf16|half|precision|mixed[-_]precision|tf32|dtype)\b")


def find(program: Program) -> Iterator[Match]:
    by_size: dict[int, Start] = {}
    for start in program.starts:
        if start.nodes and start.processes_per_node and start.arguments:
            by_size.setdefault(start.nodes * start.processes_per_node, start)
    if len(by_size) < 2:
        return
    settings = {size: _settings(start) for size, start in by_size.items()}
    if len(set(settings.values())) < 2:
        return
    sizes = sorted(settings)
    shown = "; ".join(f"{size} ranks: {' '.join(settings[size]) or 'no such option'}" for size in sizes)
    yield Match(
        program.document,
        _first_line(program.document),
        f"The scripts start this program with different precision for different numbers of ranks ({shown}).",
    )


def _settings(start: Start) -> tuple[str, ...]:
    found: list[str] = []
    for index, word in enumerate(start.arguments):
        if _PRECISION.match(word):
            following = start.arguments[index + 1] if index + 1 < len(start.arguments) else ""
            found.append(
                word if "=" in word or following.startswith("-") or not following else f"{word} {following}"
            )
    return tuple(sorted(found))


def _first_line(document: Document) -> Span:
    for number, start in enumerate(document.starts):
        line = document.line(number)
        if line.strip():
            return Span(start, start + len(line))
    return Span(0, 0)


RULE = Rule(
    code="RK602",
    name="unequal-runs",
    severity=Severity.WARNING,
    confidence=Confidence.LIKELY,
    what="Runs with different numbers of ranks are started with different precision.",
    why="A speed-up of 4 GPUs with mixed precision over 1 GPU without it is that of both; nobody can tell the parts.",
    fix="Change one thing at a time: give all runs the same precision.",
    find=find,
    fires=(
        """--- job.sh
#!/bin/bash
#SBATCH --nodes=1
#SBATCH --gpus-per-node=4
torchrun --standalone --nproc-per-node=1 train.py --epochs 2
torchrun --standalone --nproc-per-node=4 train.py --epochs 2 --amp
--- train.py
import torch
print(torch.__version__)
""",
        """--- job.sh
#!/bin/bash
#SBATCH --nodes=1
#SBATCH --gpus-per-node=2
torchrun --standalone --nproc-per-node=1 train.py --precision fp32
torchrun --standalone --nproc-per-node=2 train.py --precision bf16
--- train.py
import torch
print(torch.__version__)
""",
    ),
    silent=(
        """--- job.sh
#!/bin/bash
#SBATCH --nodes=1
#SBATCH --gpus-per-node=4
torchrun --standalone --nproc-per-node=1 train.py --amp
torchrun --standalone --nproc-per-node=4 train.py --amp
--- train.py
import torch
print(torch.__version__)
""",
        """--- job.sh
#!/bin/bash
#SBATCH --nodes=1
#SBATCH --gpus-per-node=4
torchrun --standalone --nproc-per-node=4 train.py --amp
torchrun --standalone --nproc-per-node=4 train.py
--- train.py
import torch
print(torch.__version__)
""",
    ),
)
