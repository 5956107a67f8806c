"""GLOO_SOCKET_IFNAME in a form that only NCCL understands."""

from __future__ import annotations

import re
from collections.abc import Iterator

from rankup.check.facts.job import Job
from rankup.check.rule import Match, Rule
from rankup.findings.finding import Confidence, Severity


def find(job: Job) -> Iterator[Match]:
    for binding in job.assigned.get("GLOO_SOCKET_IFNAME", ()):
        known = binding.value.known
        if not known:
            continue
        if known.startswith(("^", "=")):
            what = f"{known!r} is NCCL's way to choose; Gloo takes it for a name"
        elif re.fullmatch(r"\d+\.\d+\.\d+\.\d+(/\d+)?", known):
            what = f"{known!r} is an address, and Gloo needs the name of an interface"
        else:
            continue
        yield Match(job.document, binding.span, f"GLOO_SOCKET_IFNAME: {what}.")


RULE = Rule(
    code="RK116",
    name="gloo-ifname",
    severity=Severity.ERROR,
    confidence=Confidence.LIKELY,
    what="GLOO_SOCKET_IFNAME holds `^name`, `=name` or an address.",
    why="Gloo looks for an interface of exactly that name: Unable to find address for … (aws-do-eks#51).",
    fix="Give the name of one interface (ip -br addr), or unset it.",
    find=find,
    fires=(
        """#!/bin/bash
#SBATCH --nodes=2
export NCCL_SOCKET_IFNAME=^lo,docker0
export GLOO_SOCKET_IFNAME=^lo,docker0
srun python train.py
""",
        """#!/bin/bash
#SBATCH --nodes=2
export GLOO_SOCKET_IFNAME=10.0.0.1
srun python train.py
""",
    ),
    silent=(
        """#!/bin/bash
#SBATCH --nodes=2
export NCCL_SOCKET_IFNAME=^lo,docker0
export GLOO_SOCKET_IFNAME=ib0
srun python train.py
""",
        """#!/bin/bash
#SBATCH --nodes=2
export GLOO_SOCKET_IFNAME=$(ip -o -4 route show to default | awk '{print $5}')
srun python train.py
""",
    ),
)
