"""CUDA_VISIBLE_DEVICES in a job whose scheduler sets it."""

from __future__ import annotations

from collections.abc import Iterator

from rankup.check.facts.job import Job
from rankup.check.rule import Match, Rule
from rankup.findings.finding import Confidence, Severity


def find(job: Job) -> Iterator[Match]:
    if job.scheduler != "slurm" or job.request.exclusive or not job.request.asks_for_gpus:
        return
    for binding in job.assigned.get("CUDA_VISIBLE_DEVICES", ()):
        known = binding.value.known
        count = len(known.split(",")) if known else 0
        if count >= 4 and count == job.request.gpus_per_node:
            continue  # most likely all of the node
        if known and binding.exported and known.replace(",", "").isdigit() and _in_order(known):
            yield Match(
                job.document,
                binding.span,
                f"CUDA_VISIBLE_DEVICES={known} replaces the GPUs that SLURM chose for this job.",
            )


def _in_order(devices: str) -> bool:
    """False for 3,2,1,0: who turns the order round means it."""
    numbers = [int(number) for number in devices.split(",") if number]
    return numbers == sorted(numbers)


RULE = Rule(
    code="RK156",
    name="visible-devices-literal",
    severity=Severity.NOTE,
    confidence=Confidence.LIKELY,
    what="The script exports a fixed CUDA_VISIBLE_DEVICES, although it asks SLURM for GPUs.",
    why="Where SLURM does not hide the other GPUs of a shared node, the job uses those of another job.",
    fix="Remove it: SLURM sets it.",
    find=find,
    fires=(
        """#!/bin/bash
#SBATCH --nodes=1 --gres=gpu:2
export CUDA_VISIBLE_DEVICES=0,1
torchrun --standalone --nproc_per_node=2 train.py
""",
        """#!/bin/bash
#SBATCH --gpus-per-node=1
export CUDA_VISIBLE_DEVICES=0
python train.py
""",
    ),
    silent=(
        """#!/bin/bash
#SBATCH --nodes=1 --gres=gpu:2
CUDA_VISIBLE_DEVICES=0 python train.py --seed 1 &
CUDA_VISIBLE_DEVICES=1 python train.py --seed 2 &
wait
""",
        """#!/bin/bash
#SBATCH --nodes=1 --exclusive --gres=gpu:4
export CUDA_VISIBLE_DEVICES=0,1,2,3
python train.py
""",
    ),
)
