"""A test of the network that never leaves the node."""

from __future__ import annotations

from collections.abc import Iterator

from rankup.check.facts.job import Job
from rankup.check.facts.job_commands import Value, Variable
from rankup.check.facts.job_questions import LOCAL, outputs_of
from rankup.check.rule import Match, Rule
from rankup.findings.finding import Confidence, Severity


def find(job: Job) -> Iterator[Match]:
    if not job.request.many_nodes:
        return
    for command in job.named("ping", "nc", "ncat", "telnet"):
        if command.shell.step is not None:
            continue
        for word in command.argv[1:]:
            if _is_this_host(word):
                yield Match(
                    job.document,
                    command.span,
                    f"`{command.name}` runs on the first node and tests the first node itself.",
                )
                break


def _is_this_host(word: Value) -> bool:
    """localhost, $HOSTNAME, $(hostname), or the first of scontrol's host names, on which the batch shell runs."""
    if word.known in LOCAL or any(True for _ in outputs_of(word, "hostname")):
        return True
    if any(
        isinstance(atom, Variable) and atom.name in ("HOSTNAME", "SLURMD_NODENAME") for atom in word.atoms
    ):
        return True
    return any(command.pipe == ("head",) for _, command in outputs_of(word, "scontrol"))


RULE = Rule(
    code="RK153",
    name="pings-itself",
    severity=Severity.NOTE,
    confidence=Confidence.LIKELY,
    what="The batch script pings its own node, or tests a port there.",
    why="The test passes also where the nodes cannot reach each other.",
    fix="Run it on another node: srun --relative=1 --nodes=1 --ntasks=1 ping -c 1 HOST.",
    find=find,
    fires=(
        """#!/bin/bash
#SBATCH --nodes=2 --ntasks-per-node=1
MASTER_ADDR=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)
ping -c 1 $MASTER_ADDR
srun python train.py
""",
        """#!/bin/bash
#SBATCH --nodes=2
nc -z $(hostname) 29500
srun python train.py
""",
    ),
    silent=(
        """#!/bin/bash
#SBATCH --nodes=2 --ntasks-per-node=1
MASTER_ADDR=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)
srun ping -c 1 $MASTER_ADDR
srun python train.py
""",
        """#!/bin/bash
#SBATCH --nodes=1
ping -c 1 $(hostname)
python train.py
""",
    ),
)
