"""A program that needs a GPU, in a job that asks for none."""

from __future__ import annotations

from collections.abc import Iterator

from rankup.check.facts.job.job import Job
from rankup.check.rule import Match, Rule
from rankup.findings.finding import Confidence, Severity

_SIZES = ("nodes", "ntasks", "ntasks-per-node", "cpus-per-task", "mem", "mem-per-cpu", "time", "exclusive")


def find(job: Job) -> Iterator[Match]:
    request = job.request
    if job.scheduler not in ("slurm", "pbs", "torque") or request.asks_for_gpus is not False:
        return
    if not job.document.complete or not request.directives or _elsewhere(job):
        return
    if job.scheduler == "slurm" and not request.get(*_SIZES):
        return  # they are given on sbatch's command line, and GPUs may be as well
    for launch in job.launches:
        program, step = launch.program, launch.step
        if program is None or not program.uses_cuda:
            continue
        if step is not None and any("gpu" in name or "gres" in name for name in step.options):
            continue
        yield Match(
            job.document,
            launch.span,
            f"{program.document.path} needs a GPU (NCCL, or torch.cuda.set_device), and the directives ask for none.",
            severity=Severity.WARNING if job.site is not None and job.site.node.gpus else None,
        )


def _elsewhere(job: Job) -> bool:
    """Whether the partition, the queue or the nodes may bring GPUs without being asked."""
    names = ("partition", "constraint", "nodelist", "qos", "account", "reservation", "q", "A", "P")
    values = [directive.value.lower() for directive in job.request.directives if directive.name in names]
    if "filesystems" in job.request.resources:
        return True  # a site that gives whole nodes (ALCF)
    words = (
        "gpu",
        "a100",
        "v100",
        "h100",
        "h200",
        "cuda",
        "dgx",
        "accel",
        "gh200",
        "rtx",
        "mi250",
        "nvidia",
        "volta",
    )
    return any(word in value for value in values for word in words)


RULE = Rule(
    code="RK108",
    name="no-gpu-request",
    severity=Severity.NOTE,
    confidence=Confidence.LIKELY,
    what="A job starts a program that cannot run without a GPU, and its directives ask for none.",
    why="Most schedulers hide GPUs that a job did not ask for. Some sites give them with the partition.",
    fix="Add --gpus-per-node (SLURM), or ngpus to select (PBS).",
    find=find,
    fires=(
        """--- job.sh
#!/bin/bash
#SBATCH --nodes=1 --ntasks=1 --time=1:00:00
torchrun --standalone --nproc_per_node=2 train.py
--- train.py
import torch
import torch.distributed as dist

dist.init_process_group(backend="nccl")
""",
        """--- job.sh
#!/bin/bash
#PBS -l select=1:ncpus=8
cd "$PBS_O_WORKDIR"
python train.py
--- train.py
import torch

torch.cuda.set_device(0)
""",
    ),
    silent=(
        """--- job.sh
#!/bin/bash
#SBATCH --requeue
#SBATCH --output=%x-%j.out
srun python train.py
--- train.py
import os
import torch

torch.cuda.set_device(int(os.environ["SLURM_LOCALID"]))
""",
        """--- job.sh
#!/bin/bash
#SBATCH --nodes=1 --gres=gpu:2
torchrun --standalone --nproc_per_node=2 train.py
--- train.py
import torch.distributed as dist

dist.init_process_group(backend="nccl")
""",
    ),
)
