"""NCCL without InfiniBand or without peer-to-peer."""

from __future__ import annotations

from collections.abc import Iterator

from rankup.check.document import Span
from rankup.check.facts.job import Job
from rankup.check.rule import Edit, Match, Rule, Safety
from rankup.findings.finding import Confidence, Severity

_MEANS = {
    "NCCL_IB_DISABLE": "InfiniBand is not used",
    "NCCL_P2P_DISABLE": "the GPUs of a node talk through its memory",
    "NCCL_SHM_DISABLE": "the GPUs of a node talk through the network if they cannot reach each other",
}


def find(job: Job) -> Iterator[Match]:
    slingshot = any(
        (binding.value.known or "").startswith("hsn")
        for binding in job.assigned.get("NCCL_SOCKET_IFNAME", ())
    )
    for name, meaning in _MEANS.items():
        for binding in job.assigned.get(name, ()):
            if binding.value.known != "1" or (slingshot and name == "NCCL_IB_DISABLE"):
                continue
            if job.site is not None and job.site.env.get(name) == "1":
                continue
            yield Match(job.document, binding.span, f"{name}=1: {meaning}.", _removed(job, binding.span))


def _removed(job: Job, span: Span) -> tuple[Edit, ...]:
    """Without the line, if the assignment is all of it."""
    document = job.document
    line = document.line_of(span.start)
    if document.line(line).strip().removeprefix("export").strip() != document[span]:
        return ()
    start = document.starts[line]
    return (Edit(Span(start, min(start + len(document.line(line)) + 1, len(document.text))), ""),)


RULE = Rule(
    code="RK120",
    name="nccl-crippled",
    severity=Severity.NOTE,
    confidence=Confidence.LIKELY,
    what="A setting turns off a fast path of NCCL.",
    why="Such lines are often left from a search for an error, and cost bandwidth. Slingshot sites set them rightly.",
    fix="Remove it, unless your centre's documentation asks for it.",
    find=find,
    safety=Safety.UNSAFE,
    fires=(
        """#!/bin/bash
#SBATCH --nodes=2
export NCCL_IB_DISABLE=1
srun python train.py
""",
        """#!/bin/bash
#SBATCH --nodes=1
export NCCL_P2P_DISABLE="1"
srun python train.py
""",
    ),
    silent=(
        """#!/bin/bash
#SBATCH --nodes=2
export NCCL_IB_DISABLE=0
srun python train.py
""",
        """#!/bin/bash
#SBATCH --nodes=2
# export NCCL_P2P_DISABLE=1
srun python train.py
""",
    ),
)
