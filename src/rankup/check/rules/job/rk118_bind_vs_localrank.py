"""Tasks that see one GPU each, and a program that counts them."""

from __future__ import annotations

from collections.abc import Iterator

from rankup.check.facts.job import Job, Launch
from rankup.check.facts.job_commands import Step
from rankup.check.facts.program import Program
from rankup.check.rule import Match, Rule
from rankup.findings.finding import Confidence, Severity


def find(job: Job) -> Iterator[Match]:
    for launch in job.launches:
        step, program = launch.step, launch.program
        if step is None or step.kind != "srun" or launch.forms_ranks or (step.tasks_per_node or 0) < 2:
            continue
        how = _one_gpu_each(job, launch, step)
        if how and program is not None and program.device_is_local_rank and not _counts_devices(program):
            yield Match(
                job.document,
                launch.span,
                f"{how}: each of the {step.tasks_per_node} tasks sees one GPU, number 0, and {program.document.path} "
                "takes the one with its local rank's number.",
            )


def _counts_devices(program: Program) -> bool:
    """Whether it asks how many GPUs it sees, most likely to take its rank modulo that number."""
    return bool(program.named("torch.cuda.device_count"))


def _one_gpu_each(job: Job, launch: Launch, step: Step) -> str:
    """The option that gives each task one GPU of its own; "" if none does."""
    bind = step.options.get("gpu-bind")
    directive = job.request.by_name.get("gpu-bind")
    text = bind.known if bind is not None else directive.value if directive is not None else ""
    if text is None or text.startswith("none") or launch.exported("CUDA_VISIBLE_DEVICES") is not None:
        return ""
    if text.startswith("single:1"):
        return f"--gpu-bind={text}"
    given = step.options.get("gpus-per-task")
    if given is not None:
        return "--gpus-per-task=1" if job.number(given) == 1 else ""
    return (
        "--gpus-per-task=1"
        if job.request.gpus_per_task == 1 and not job.request.get("gpus-per-node", "gres")
        else ""
    )


RULE = Rule(
    code="RK118",
    name="bind-vs-localrank",
    severity=Severity.ERROR,
    confidence=Confidence.LIKELY,
    what="SLURM gives each task one GPU, and the program chooses its GPU by the local rank.",
    why="With --gpus-per-task=1 each task sees its GPU as number 0 (SLURM 22.05): others are invalid device ordinals.",
    fix="Ask with --gpus-per-node, or choose local_rank % torch.cuda.device_count().",
    find=find,
    fires=(
        """--- job.sh
#!/bin/bash
#SBATCH --nodes=1 --ntasks-per-node=4
#SBATCH --gpus-per-task=1
srun python train.py
--- train.py
import os
import torch

local_rank = int(os.environ["SLURM_LOCALID"])
torch.cuda.set_device(local_rank)
""",
        """--- job.sh
#!/bin/bash
#SBATCH --nodes=2 --ntasks-per-node=4 --gpus-per-node=4
srun --gpus-per-task=1 python train.py
--- train.py
import os
import torch

torch.cuda.set_device(int(os.environ["SLURM_LOCALID"]))
""",
    ),
    silent=(
        """--- job.sh
#!/bin/bash
#SBATCH --nodes=1 --ntasks-per-node=4
#SBATCH --gpus-per-task=1
srun --gpu-bind=none python train.py
--- train.py
import os
import torch

torch.cuda.set_device(int(os.environ["SLURM_LOCALID"]))
""",
        """--- job.sh
#!/bin/bash
#SBATCH --nodes=1 --ntasks-per-node=4
#SBATCH --gpus-per-task=1
srun python train.py
--- train.py
import os
import torch

local_rank = int(os.environ["SLURM_LOCALID"])
torch.cuda.set_device(local_rank % torch.cuda.device_count())
""",
        """--- job.sh
#!/bin/bash
#SBATCH --nodes=1 --ntasks-per-node=4 --gpus-per-node=4
srun python train.py
--- train.py
import os
import torch

torch.cuda.set_device(int(os.environ["SLURM_LOCALID"]))
""",
    ),
)
