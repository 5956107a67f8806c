"""python -m torch.distributed.launch."""

from __future__ import annotations

from collections.abc import Iterator

from rankup.check.facts.job.job import Job
from rankup.check.rule import Match, Rule
from rankup.findings.finding import Confidence, Severity


def find(job: Job) -> Iterator[Match]:
    for launch in job.launches:
        if launch.launcher == "launch":
            yield Match(
                job.document, launch.span, "torch.distributed.launch is deprecated; torchrun replaces it."
            )
            return


RULE = Rule(
    code="RK183",
    name="old-launcher",
    severity=Severity.NOTE,
    confidence=Confidence.SURE,
    what="Processes are started by torch.distributed.launch.",
    why="It is deprecated since PyTorch 1.9. Since 2.0 it passes --local-rank where it passed --local_rank, on which "
    "programs of that time end with 'unrecognized arguments'.",
    fix="Use torchrun, and read the rank from the variable LOCAL_RANK.",
    find=find,
    fires=(
        """#!/bin/bash
#SBATCH --nodes=1 --gpus-per-node=4
python -m torch.distributed.launch --nproc_per_node=4 train.py
""",
        """#!/bin/bash
#SBATCH --nodes=2 --ntasks-per-node=1
srun python3 -u -m torch.distributed.launch --nnodes=2 --nproc_per_node=4 --use_env train.py
""",
    ),
    silent=(
        """#!/bin/bash
#SBATCH --nodes=1 --gpus-per-node=4
python -m torch.distributed.run --standalone --nproc_per_node=4 train.py
""",
        """#!/bin/bash
#SBATCH --nodes=1 --gpus-per-node=4
# python -m torch.distributed.launch --nproc_per_node=4 train.py
torchrun --standalone --nproc_per_node=4 train.py
""",
    ),
)
