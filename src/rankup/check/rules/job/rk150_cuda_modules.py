"""Modules for different versions of CUDA."""

from __future__ import annotations

import re
from collections.abc import Iterator

from rankup.check.facts.job import Job
from rankup.check.rule import Match, Rule
from rankup.findings.finding import Confidence, Severity

_CUDA = re.compile(r"cuda(?:toolkit|core)?[-_/]?(?:v)?(\d{2})(?:[._]?\d+)?(?![\d])", re.I)


def find(job: Job) -> Iterator[Match]:
    loaded: dict[str, str] = {}
    for command in job.commands:
        if command.name not in ("module", "ml") or command.conditional or not command.args:
            continue
        words = list(command.args)
        if command.name == "module":
            if words[0] in ("purge", "unload", "rm", "switch", "swap"):
                loaded.clear()
                continue
            if words[0] not in ("load", "add"):
                continue
            words = words[1:]
        for word in words:
            match = _CUDA.search(word or "")
            if match is None or word is None or word.startswith("-"):
                continue
            version = match.group(1)
            other = next((name for name, known in loaded.items() if known != version), None)
            if other is not None:
                yield Match(
                    job.document, command.span, f"{other} and {word} are for different versions of CUDA."
                )
                return
            loaded[word] = version


RULE = Rule(
    code="RK150",
    name="cuda-modules",
    severity=Severity.NOTE,
    confidence=Confidence.LIKELY,
    what="The job loads modules that are named for different major versions of CUDA.",
    why="Libraries of one version are then found by programs that were built for the other.",
    fix="Load one version; a PyTorch wheel needs no CUDA module at all.",
    find=find,
    fires=(
        """#!/bin/bash
#SBATCH --nodes=1
module load cuda/12.1
module load cudnn/8.6-cuda11.8
python train.py
""",
        """#!/bin/bash
#SBATCH --nodes=1
module load CUDA/11.7.0 PyTorch/2.1.2-foss-2023a-CUDA-12.1.1
python train.py
""",
    ),
    silent=(
        """#!/bin/bash
#SBATCH --nodes=1
module load cuda/12.1 nccl/2.19-cuda12.1
python train.py
""",
        """#!/bin/bash
#SBATCH --nodes=1
module load cuda/11.8
module purge
module load cuda/12.1
python train.py
""",
    ),
)
