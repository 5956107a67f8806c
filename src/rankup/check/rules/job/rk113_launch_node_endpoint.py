"""SLURM_LAUNCH_NODE_IPADDR as the address of rank 0."""

from __future__ import annotations

from collections.abc import Iterator

from rankup.check.facts.job import Job
from rankup.check.facts.job_questions import endpoint
from rankup.check.rule import Match, Rule
from rankup.findings.finding import Confidence, Severity


def find(job: Job) -> Iterator[Match]:
    for launch in job.launches:
        found = endpoint(launch)
        values = [found[1] if found else None, launch.exported("MASTER_ADDR")]
        for value in values:
            for variable in value.variables() if value is not None else ():
                if variable.name == "SLURM_LAUNCH_NODE_IPADDR":
                    yield Match(
                        job.document,
                        variable.span,
                        "SLURM_LAUNCH_NODE_IPADDR is the host on which srun was called, not that of rank 0.",
                    )


RULE = Rule(
    code="RK113",
    name="launch-node-endpoint",
    severity=Severity.NOTE,
    confidence=Confidence.LIKELY,
    what="The address of rank 0 is taken from SLURM_LAUNCH_NODE_IPADDR.",
    why=(
        "It is the address of the host that called srun: a login node in an interactive job, and an address in "
        "whatever network the controller uses. In a batch job it is often right."
    ),
    fix='Use $(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1).',
    find=find,
    fires=(
        """#!/bin/bash
#SBATCH --nodes=2 --ntasks-per-node=1
srun bash -c 'torchrun --nnodes=2 --rdzv_backend=c10d --rdzv_endpoint=$SLURM_LAUNCH_NODE_IPADDR:29500 train.py'
""",
        """#!/bin/bash
#SBATCH --nodes=2 --ntasks-per-node=4
export MASTER_ADDR=$SLURM_LAUNCH_NODE_IPADDR MASTER_PORT=29500
srun python train.py
""",
    ),
    silent=(
        """#!/bin/bash
#SBATCH --nodes=2 --ntasks-per-node=1
echo "$SLURM_LAUNCH_NODE_IPADDR"
srun torchrun --nnodes=2 --rdzv_backend=c10d --rdzv_endpoint=$(hostname):29500 train.py
""",
        """#!/bin/bash
#SBATCH --nodes=2 --ntasks-per-node=4
export MASTER_ADDR=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1) MASTER_PORT=29500
srun python train.py
""",
    ),
)
