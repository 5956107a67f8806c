"""A provider of libfabric that is not that of the fabric."""

from __future__ import annotations

from collections.abc import Iterator

from rankup.check.facts.job.job import Job
from rankup.check.rule import Match, Rule
from rankup.findings.finding import Confidence, Severity

_INTERFACES = ("NCCL_SOCKET_IFNAME", "GLOO_SOCKET_IFNAME", "TP_SOCKET_IFNAME")
_SLINGSHOT = {"cxi", "shm+cxi:lnx", "lnx"}


def find(job: Job) -> Iterator[Match]:
    names = [
        (binding.value.known or "").strip("=^")
        for name in _INTERFACES
        for binding in job.assigned.get(name, ())
    ]
    names += [job.site.node.interface] if job.site is not None else []
    slingshot = any(name.startswith("hsn") for name in names)
    for binding in job.assigned.get("FI_PROVIDER", ()):
        provider = (binding.value.known or "").lower()
        if slingshot and provider in ("efa", "verbs", "psm2", "psm3", "opx"):
            message = f"FI_PROVIDER={provider} on Slingshot (interface hsn), whose provider is cxi"
        elif provider in _SLINGSHOT and any(name.startswith("ib") for name in names) and not slingshot:
            message = f"FI_PROVIDER={provider} is Slingshot's, and the interface is one of InfiniBand"
        else:
            continue
        yield Match(job.document, binding.span, message)


RULE = Rule(
    code="RK163",
    name="fi-provider",
    severity=Severity.WARNING,
    confidence=Confidence.LIKELY,
    what="FI_PROVIDER names another network than the interface in the script, or than that of the site.",
    why="Then libfabric finds no such device: NCCL's plugin fails, or TCP is used at a fraction of the rate.",
    fix="Use cxi on Slingshot, efa on Amazon's network, verbs on InfiniBand; or leave FI_PROVIDER to the module.",
    find=find,
    fires=(
        """#!/bin/bash
#SBATCH --nodes=2
export NCCL_SOCKET_IFNAME=hsn
export FI_PROVIDER=efa
srun python train.py
""",
        """#!/bin/bash
#SBATCH --nodes=2
export GLOO_SOCKET_IFNAME=ib0
export FI_PROVIDER=cxi
srun python train.py
""",
    ),
    silent=(
        """#!/bin/bash
#SBATCH --nodes=2
export NCCL_SOCKET_IFNAME=hsn0,hsn1
export FI_PROVIDER=cxi
srun python train.py
""",
        """#!/bin/bash
#SBATCH --nodes=2
export FI_PROVIDER=efa
srun python train.py
""",
    ),
)
