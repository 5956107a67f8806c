"""CUDA_VISIBLE_DEVICES in a job whose scheduler sets it."""

from __future__ import annotations

from collections.abc import Iterator

from rankup.check.facts.job.job import Job
from rankup.check.facts.job.questions import devices
from rankup.check.rule import Match, Rule
from rankup.findings.finding import Confidence, Severity


def find(job: Job) -> Iterator[Match]:
    request, given = job.request, job.assigned.get("CUDA_VISIBLE_DEVICES", [])
    asked = request.gpus_per_node
    said = not request.packed or request.nodes == 1
    if request.scheduler == "slurm":  # the number of tasks may come from the command line
        said = bool(request.by_name.keys() & {"gres", "gpus-per-node"})
    for binding in given:
        numbers = devices(binding.value)
        if not numbers or not binding.exported or not job.scheduler:
            continue
        shown = ",".join(map(str, numbers))
        if asked and said and len(numbers) > asked:
            yield Match(
                job.document,
                binding.span,
                f"CUDA_VISIBLE_DEVICES={shown} names {len(numbers)} GPUs, and the job asks for {asked} per node.",
                severity=Severity.WARNING,
                why="CUDA ignores a device that is not there, and all that follow it: ranks with these numbers fail.",
            )
        elif job.scheduler != "slurm" or request.exclusive or not request.asks_for_gpus:
            continue
        elif len(numbers) >= 4 and len(numbers) == asked:
            continue  # most likely all of the node
        elif numbers == sorted(numbers):  # who turns the order round means it
            unused = len(given) == 1 and asked is not None and len(numbers) < asked
            yield Match(
                job.document,
                binding.span,
                f"CUDA_VISIBLE_DEVICES={shown} replaces the GPUs that SLURM chose for this job"
                + (f": {len(numbers)} of {asked} are used." if unused else "."),
            )


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
