"""One GPU on each of several nodes."""

from __future__ import annotations

from collections.abc import Iterator

from rankup.check.facts.job import Job
from rankup.check.facts.job_questions import trains
from rankup.check.rule import Match, Rule
from rankup.findings.finding import Confidence, Severity


def find(job: Job) -> Iterator[Match]:
    request = job.request
    nodes, directive = request.nodes, request.gpu_directive
    if request.gpus_per_node != 1 or not nodes or nodes < 2 or directive is None or job.scheduler != "slurm":
        return
    if job.site is not None and job.site.node.gpus < 2:
        return
    if any(launch.step is not None and trains(job, launch) for launch in job.launches):
        yield Match(
            job.document,
            directive.span,
            f"{nodes} nodes with one GPU each: the GPUs of one node would talk without the network.",
        )


RULE = Rule(
    code="RK154",
    name="one-gpu-per-node",
    severity=Severity.NOTE,
    confidence=Confidence.LIKELY,
    what="A training asks for one GPU on each of several nodes.",
    why="Gradients then cross the network, and free nodes are harder to get than free GPUs of one node.",
    fix="Ask for all GPUs of a node before a second node, unless each node has one only, or you test the network.",
    find=find,
    fires=(
        """#!/bin/bash
#SBATCH --nodes=4 --ntasks-per-node=1 --gpus-per-node=1
srun torchrun --nnodes=4 --nproc_per_node=1 --rdzv_backend=c10d --rdzv_endpoint=$HEAD:29500 train.py
""",
        """#!/bin/bash
#SBATCH --nodes=2 --ntasks-per-node=1 --gres=gpu:1
export MASTER_ADDR=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1) MASTER_PORT=29500
srun python train.py
""",
    ),
    silent=(
        """#!/bin/bash
#SBATCH --nodes=2 --ntasks-per-node=1 --gpus-per-node=4
srun torchrun --nnodes=2 --nproc_per_node=4 --rdzv_backend=c10d --rdzv_endpoint=$HEAD:29500 train.py
""",
        """#!/bin/bash
#SBATCH --nodes=1 --gres=gpu:1
python train.py
""",
    ),
)
