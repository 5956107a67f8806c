"""The address of rank 0 from ``hostname --ip-address``."""

from __future__ import annotations

from collections.abc import Iterator

from rankup.check.facts.job.commands import Value
from rankup.check.facts.job.job import Job
from rankup.check.facts.job.questions import endpoint, outputs_of
from rankup.check.rule import Match, Rule
from rankup.findings.finding import Confidence, Severity

_OPTIONS = ("-i", "-I", "--ip-address", "--all-ip-addresses")


def find(job: Job) -> Iterator[Match]:
    if not job.request.many_nodes:
        return
    seen: set[int] = set()
    for launch in job.launches:
        found = endpoint(launch)
        yield from _of(job, found[1] if found else None, seen)
    for binding in job.assigned.get("MASTER_ADDR", ()):
        yield from _of(job, binding.value, seen)


def _of(job: Job, value: Value | None, seen: set[int]) -> Iterator[Match]:
    for _, command in outputs_of(value, "hostname") if value is not None else ():
        if command.span.start in seen or not command.has(*_OPTIONS):
            continue
        seen.add(command.span.start)
        option = next(arg for arg in command.args if arg in _OPTIONS)
        cut = any(name in ("awk", "cut", "head", "sed", "grep", "tr") for name in command.pipe)
        if cut:
            message = f"`hostname {option}` names any of the host's addresses; here its output is cut to one of them."
        else:
            message = f"`hostname {option}` may print 127.0.1.1, or several addresses."
        yield Match(job.document, command.span, message)


RULE = Rule(
    code="RK114",
    name="hostname-ip",
    severity=Severity.NOTE,
    confidence=Confidence.LIKELY,
    what="The address at which several nodes meet comes from `hostname -i`, `-I` or `--ip-address`.",
    why=(
        "On some sites a host's own name means 127.0.1.1 there, on others it has several addresses: then the other "
        "nodes wait at the wrong one. Where it prints one good address, nothing is wrong."
    ),
    fix='Use the name: $(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1).',
    find=find,
    fires=(
        """#!/bin/bash
#SBATCH --nodes=2 --ntasks-per-node=1
head_node=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)
head_node_ip=$(srun --nodes=1 --ntasks=1 -w "$head_node" hostname --ip-address)
srun torchrun --nnodes=2 --rdzv_backend=c10d --rdzv_endpoint=$head_node_ip:29500 train.py
""",
        """#!/bin/bash
#SBATCH --nodes=2 --ntasks-per-node=4
export MASTER_ADDR=$(hostname -I | awk '{print $1}') MASTER_PORT=29500
srun python train.py
""",
    ),
    silent=(
        """#!/bin/bash
#SBATCH --nodes=1
export MASTER_ADDR=$(hostname -i) MASTER_PORT=29500
srun python train.py
""",
        """#!/bin/bash
#SBATCH --nodes=2 --ntasks-per-node=1
echo "on $(hostname -i)"
srun torchrun --nnodes=2 --rdzv_backend=c10d --rdzv_endpoint=$(hostname -s):29500 train.py
""",
    ),
)
