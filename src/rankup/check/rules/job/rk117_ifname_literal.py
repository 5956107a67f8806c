"""A network interface that is named in the script."""

from __future__ import annotations

from collections.abc import Iterator

from rankup.check.facts.job import Job
from rankup.check.rule import Match, Rule
from rankup.findings.finding import Confidence, Severity


def find(job: Job) -> Iterator[Match]:
    for name in ("NCCL_SOCKET_IFNAME", "GLOO_SOCKET_IFNAME", "TP_SOCKET_IFNAME"):
        for binding in job.assigned.get(name, ()):
            known = binding.value.known
            if not known or known.startswith("^"):
                continue
            if job.site is None and known.lstrip("=").startswith("hsn"):
                continue  # Slingshot, where the centres ask for it
            interface = job.site.node.interface if job.site is not None else ""
            wanted = known.lstrip("=").split(",")
            if interface and job.site is not None:
                if any(interface.startswith(one) for one in wanted):
                    continue
                yield Match(
                    job.document,
                    binding.span,
                    f"{name} is {known!r}, but the nodes of {job.site.name} meet over {interface}.",
                    severity=Severity.WARNING,
                )
            elif job.site is None:
                yield Match(job.document, binding.span, f"{name} is {known!r}, which not every cluster has.")


RULE = Rule(
    code="RK117",
    name="ifname-literal",
    severity=Severity.NOTE,
    confidence=Confidence.LIKELY,
    what="The name of a network interface stands in the script.",
    why="Where the nodes lack that interface, ranks cannot connect. Your site may need it, though.",
    fix="Unset it and let NCCL choose, unless your centre's documentation names this interface.",
    find=find,
    fires=(
        """#!/bin/bash
#SBATCH --nodes=2
export NCCL_SOCKET_IFNAME=eth0
srun python train.py
""",
        """#!/bin/bash
#SBATCH --nodes=2
export GLOO_SOCKET_IFNAME=ib0
srun python train.py
""",
    ),
    silent=(
        """#!/bin/bash
#SBATCH --nodes=2
export NCCL_SOCKET_IFNAME=^lo,docker0
srun python train.py
""",
        """#!/bin/bash
#SBATCH --nodes=2
export NCCL_SOCKET_IFNAME=$INTERFACE
srun python train.py
""",
    ),
)
