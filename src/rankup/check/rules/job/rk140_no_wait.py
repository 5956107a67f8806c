"""A batch script that ends while its programs run in the background."""

from __future__ import annotations

from collections.abc import Iterator

from rankup.check.document import Span
from rankup.check.facts.job.commands import Command
from rankup.check.facts.job.job import Job
from rankup.check.facts.job.signals import in_background
from rankup.check.rule import Edit, Match, Rule, Safety
from rankup.findings.finding import Confidence, Severity

#: What a script does quickly after it has started its programs.
_BRIEF = frozenset(
    {"echo", "date", "printf", "exit", "export", "cd", "mkdir", "cp", "ls", "hostname", "true", "rm"}
)


def find(job: Job) -> Iterator[Match]:
    if not job.scheduler or not job.complete:
        return
    started: Command | None = None
    for command in job.commands:
        if command.in_output or command.function == "trap":
            continue
        if in_background(command):
            if command.parent is None and _starts(job, command):
                started = command
        elif command.parent is None and started is not None and command.name not in _BRIEF and command.argv:
            started = None  # wait, sleep, tail, another program: the script goes on for a while
    if started is None:
        return
    text = job.document.text
    end = len(text)
    again = "wait\n" if text.endswith("\n") else "\nwait\n"
    yield Match(
        job.document,
        started.span,
        f"{started.name or 'This program'} is started in the background, and the script ends without `wait`.",
        (Edit(Span(end, end), again),) if not started.function else (),
    )


def _starts(job: Job, command: Command) -> bool:
    """Whether a command is a node launcher, or starts a program of Python."""
    if command.step is not None:
        return True
    for launch in job.launches:
        current: Command | None = launch.command
        while current is not None:
            if current is command:
                return True
            current = current.parent
    return False


RULE = Rule(
    code="RK140",
    name="no-wait",
    severity=Severity.ERROR,
    confidence=Confidence.SURE,
    what="A program (srun, pbsdsh, ssh, python …) is started in the background, and nothing waits for it.",
    why="The job ends with its script: what still runs is killed at once.",
    fix="End the script with `wait`.",
    find=find,
    safety=Safety.UNSAFE,
    fires=(
        """#!/bin/bash
#PBS -l select=2:ncpus=8:ngpus=1:mpiprocs=1
cd "$PBS_O_WORKDIR"
for i in 0 1; do
  pbsdsh -n $i -- bash "$PBS_O_WORKDIR/agent.sh" &
done
""",
        """#!/bin/bash
#SBATCH --nodes=1 --gres=gpu:2
CUDA_VISIBLE_DEVICES=0 python train.py --seed 1 &
CUDA_VISIBLE_DEVICES=1 python train.py --seed 2 &
echo started
""",
    ),
    silent=(
        """#!/bin/bash
#PBS -l select=2:ncpus=8:ngpus=1:mpiprocs=1
cd "$PBS_O_WORKDIR"
for i in 0 1; do
  pbsdsh -n $i -- bash "$PBS_O_WORKDIR/agent.sh" &
done
wait
""",
        """#!/bin/bash
#SBATCH --nodes=1 --gres=gpu:1
python server.py &
python client.py
""",
    ),
)
