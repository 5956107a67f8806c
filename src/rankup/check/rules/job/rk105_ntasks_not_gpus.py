"""srun starts python, but not as often as there are GPUs."""

from __future__ import annotations

import re
from collections.abc import Iterator

from rankup.check.facts.job.commands import Step
from rankup.check.facts.job.job import Job, Launch
from rankup.check.facts.job.questions import is_distributed, trains
from rankup.check.rule import Edit, Match, Rule, Safety
from rankup.findings.finding import Confidence, Severity


def find(job: Job) -> Iterator[Match]:
    request = job.request
    for launch in job.launches:
        step = launch.step
        if (
            launch.forms_ranks
            or step is None
            or step.kind not in ("srun", "mpirun", "mpiexec")
            or step.in_loop
        ):
            continue
        tasks, gpus = step.tasks_per_node, request.gpus_per_node
        if tasks is None or not gpus or tasks == gpus or not trains(job, launch):
            continue
        if tasks == 1 and not _is_one_rank(launch):
            continue
        if (
            step.options.keys() & {"gpus", "gres", "gpus-per-task", "gpus-per-node", "nodelist"}
            or step.background
        ):
            continue
        if (request.gpus_per_task or 1) != 1 and tasks < gpus:
            continue  # several GPUs for each task
        if tasks > gpus and _shares(job, step):
            continue  # its tasks need not all train
        directive = request.get("ntasks-per-node")
        edits: tuple[Edit, ...] = ()
        if directive is not None and directive.number == tasks and "ntasks" not in request.by_name:
            edits = (Edit(directive.value_span, str(gpus)),)
        if tasks > gpus:
            yield Match(
                job.document,
                launch.span,
                f"{step.kind} starts {tasks} tasks on each node, which has {gpus} GPU{'s' * (gpus > 1)}.",
                edits,
                severity=Severity.ERROR,
                confidence=Confidence.SURE if is_distributed(launch) else Confidence.LIKELY,
                why="Two ranks share a GPU: NCCL refuses it (Duplicate GPU detected), or the device does not exist.",
            )
        else:
            yield Match(
                job.document,
                launch.span,
                f"{step.kind} starts {tasks} tasks on each node, and {gpus - tasks} of its {gpus} GPUs are not used.",
                edits,
            )


def _shares(job: Job, step: Step) -> bool:
    """Whether ``--gpu-bind=single:N`` gives a GPU to several tasks, on purpose."""
    given, directive = step.options.get("gpu-bind"), job.request.by_name.get("gpu-bind")
    bind = given.text if given is not None else directive.value if directive is not None else ""
    return re.search(r"\bsingle:([2-9]|\d\d)", bind) is not None


def _is_one_rank(launch: Launch) -> bool:
    """Whether the program certainly is one rank, and starts no others."""
    program = launch.program
    if program is None or not program.whole:
        return False
    return program.distributed and not program.spawns and not program.frameworks


RULE = Rule(
    code="RK105",
    name="ntasks-not-gpus",
    severity=Severity.WARNING,
    confidence=Confidence.LIKELY,
    what="A step starts a distributed program without torchrun, and the tasks per node are not the GPUs per node.",
    why="Without torchrun each task is one rank, and each rank uses one GPU (Lightning-AI/pytorch-lightning#15011).",
    fix="Make --ntasks-per-node the number of GPUs per node.",
    find=find,
    safety=Safety.UNSAFE,
    fires=(
        """--- job.sh
#!/bin/bash
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=1
#SBATCH --gpus-per-node=4
export MASTER_ADDR=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1) MASTER_PORT=12345
srun python train.py
--- train.py
import os
import torch.distributed as dist

dist.init_process_group("nccl", rank=int(os.environ["SLURM_PROCID"]), world_size=int(os.environ["SLURM_NTASKS"]))
dist.destroy_process_group()
""",
        """#!/bin/bash
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=8
#SBATCH --gpus-per-node=4
export MASTER_ADDR=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1) MASTER_PORT=12345
srun python train.py
""",
    ),
    silent=(
        """--- job.sh
#!/bin/bash
#SBATCH --nodes=2
#SBATCH --gpus-per-node=4
export MASTER_ADDR=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1) MASTER_PORT=12345
srun python train.py
--- train.py
import torch.distributed as dist
import torch.multiprocessing as mp


def work(rank):
    dist.init_process_group("nccl", rank=rank, world_size=4)


mp.spawn(work, nprocs=4)
""",
        """#!/bin/bash
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=4
#SBATCH --gpus-per-node=4
export MASTER_ADDR=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1) MASTER_PORT=12345
srun python train.py
""",
    ),
)
