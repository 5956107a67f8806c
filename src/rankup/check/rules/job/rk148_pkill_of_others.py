"""pkill -f, which does not ask whose job a process belongs to."""

from __future__ import annotations

from collections.abc import Iterator

from rankup.check.facts.job import Job
from rankup.check.rule import Match, Rule
from rankup.findings.finding import Confidence, Severity


def find(job: Job) -> Iterator[Match]:
    if not job.scheduler or job.request.exclusive:
        return
    for command in job.named("pkill", "killall"):
        if command.name == "pkill" and not any(
            arg and arg.startswith("-") and "f" in arg for arg in command.args
        ):
            continue
        if command.has("-P", "--parent", "-g", "--pgroup", "-s", "--session"):
            continue
        target = command.args[-1] if command.args else None
        yield Match(
            job.document,
            command.span,
            f"`{command.name}` ends every process of yours that matches{f' {target!r}' if target else ''}, "
            "also those of another job on the same node.",
        )


RULE = Rule(
    code="RK148",
    name="pkill-of-others",
    severity=Severity.NOTE,
    confidence=Confidence.LIKELY,
    what="Processes are ended by their name (pkill -f, killall) in a job that may share its nodes.",
    why="Two jobs of one user on one node end each other's programs.",
    fix="Keep the process's id: monitor & pid=$!; …; kill $pid.",
    find=find,
    fires=(
        """#!/bin/bash
#SBATCH --nodes=1 --gres=gpu:1
nvidia-smi dmon > gpu.log &
python train.py
pkill -f "nvidia-smi dmon"
""",
        """#!/bin/bash
#PBS -l select=1:ncpus=8:ngpus=1
cd "$PBS_O_WORKDIR"
python train.py
killall nvidia-smi
""",
    ),
    silent=(
        """#!/bin/bash
#SBATCH --nodes=1 --gres=gpu:1
nvidia-smi dmon > gpu.log & monitor=$!
python train.py
kill $monitor
""",
        """#!/bin/bash
#SBATCH --nodes=1 --exclusive
python train.py
pkill -f tensorboard
""",
    ),
)
