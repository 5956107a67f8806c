"""The address of rank 0 is a node that the script names."""

from __future__ import annotations

import re
from collections.abc import Iterator

from rankup.check.facts.job.commands import Value
from rankup.check.facts.job.job import Job
from rankup.check.rule import Match, Rule
from rankup.findings.finding import Confidence, Severity

_NODE = re.compile(r"[a-z][a-z-]*\d[\w-]*(\.[\w.-]+)?")
_ANY_NODE = ("nodelist", "w", "host")


def find(job: Job) -> Iterator[Match]:
    if job.scheduler not in ("slurm", "pbs", "torque", "lsf") or job.request.get(*_ANY_NODE) is not None:
        return
    if any("host" in chunk.resources for chunk in job.request.chunks):
        return
    for name in ("MASTER_ADDR", "master_addr", "MAIN_ADDR"):
        for binding in job.assigned.get(name, ()):
            host = _host(binding.value)
            if host and binding.certain:
                yield Match(job.document, binding.span, f"{name} is {host}, whatever nodes the job gets.")
                return

    for command in job.named("ssh"):
        words = [arg or "" for arg in command.args]
        if (
            command.in_output
            and len(words) > 1
            and _NODE.fullmatch(words[0])
            and words[1] in ("hostname", "ip")
        ):
            yield Match(
                job.document, command.span, f"The address is that of {words[0]}, whatever nodes the job gets."
            )
            return


def _host(value: Value) -> str:
    """A node's name, as it is written."""
    word = value.known or ""
    return word if _NODE.fullmatch(word) else ""


RULE = Rule(
    code="RK178",
    name="node-by-name",
    severity=Severity.WARNING,
    confidence=Confidence.SURE,
    what="MASTER_ADDR is the name of one node, in a job that may get others.",
    why="The scheduler chooses the nodes: the ranks wait for a host that is not theirs, until they give up.",
    fix='Use $(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1), or the first line of $PBS_NODEFILE.',
    find=find,
    fires=(
        """#!/bin/bash
#SBATCH --nodes=2 --ntasks-per-node=4
export MASTER_ADDR=gpu017 MASTER_PORT=12345
srun python train.py
""",
        """#!/bin/bash
#SBATCH --nodes=2 --ntasks-per-node=4
export MASTER_ADDR=$(ssh node02662 hostname -I)
srun python train.py
""",
    ),
    silent=(
        """#!/bin/bash
#SBATCH --nodes=2 --ntasks-per-node=4 --nodelist=gpu017,gpu018
export MASTER_ADDR=gpu017 MASTER_PORT=12345
srun python train.py
""",
        """#!/bin/bash
#SBATCH --nodes=1 --ntasks-per-node=4
export MASTER_ADDR=localhost MASTER_PORT=12345
srun python train.py
""",
    ),
)
