"""Tasks that see one GPU each, and a program that counts them."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from rankup.check.facts.job.commands import Step
from rankup.check.facts.job.job import Job, Launch
from rankup.check.facts.program.guards import Guard
from rankup.check.facts.program.module import Call, Scope
from rankup.check.facts.program.program import Program
from rankup.check.facts.program.sharding import expressions
from rankup.check.facts.program.snapshots import to_file
from rankup.check.facts.program.value import Kind
from rankup.check.rule import Match, Rule
from rankup.findings.finding import Confidence, Severity


def find(job: Job) -> Iterator[Match]:
    for launch in job.launches:
        step, program = launch.step, launch.program
        if step is None or step.kind != "srun" or launch.forms_ranks or (step.tasks_per_node or 0) < 2:
            continue
        how = _one_gpu_each(job, launch, step)
        if not how or program is None:
            continue
        for call in _saved_by_all(program):
            yield Match(
                job.document,
                launch.span,
                f"{how}: torch.cuda.device_count() is 1 in each task, so the local rank of {call.module.document.path} "
                f"is 0 on all ranks, and each of them runs the save at {call.module.line(call.node.lineno)}.",
                fix="Ask for the global rank before you save: if dist.get_rank() == 0.",
                why="A rank modulo 1 is 0. The ranks write one file at the same time, and the file can be broken.",
            )
        if program.device_is_local_rank and not _counts_devices(program):
            yield Match(
                job.document,
                launch.span,
                f"{how}: each of the {step.tasks_per_node} tasks sees one GPU, number 0, and {program.document.path} "
                "takes the one with its local rank's number.",
            )


def _counts_devices(program: Program) -> bool:
    """Whether it asks how many GPUs it sees, most likely to take its rank modulo that number."""
    return bool(program.named("torch.cuda.device_count"))


def _saved_by_all(program: Program) -> Iterator[Call]:
    """The saves under ``local_rank == 0``, where the local rank is a rank modulo the number of visible GPUs."""
    for call in program.named("torch.save"):
        guards = program.guards.everywhere(call.node, call.scope)
        if guards and to_file(program, call) and all(_holds_on_all(program, guard) for guard in guards):
            yield call


def _holds_on_all(program: Program, guard: Guard) -> bool:
    test = guard.test
    if test.of is not Kind.LOCAL_RANK or not (test.first and test.sure) or test.number:
        return False
    return any(
        _is_modulo_devices(program, node, guard.module.scope_of(node))
        for node in ast.walk(getattr(guard.at, "test", guard.at))
        if isinstance(node, (ast.Name, ast.Attribute))
    )


def _is_modulo_devices(program: Program, node: ast.expr, scope: Scope) -> bool:
    """Whether a name was given ``rank % torch.cuda.device_count()``, and nothing else anywhere."""
    if len(program.values.of(node, scope)) != 1:
        return False
    return any(
        isinstance(part, ast.BinOp)
        and isinstance(part.op, ast.Mod)
        and any(
            atom.kind is Kind.LOCAL_SIZE and "device_count" in str(atom.detail)
            for atom in program.values.of(part.right, inside)
        )
        for part, inside in expressions(program, node, scope)
    )


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
    what="SLURM gives each task one GPU, and the program expects to see all GPUs of its node.",
    why="With --gpus-per-task=1 each task sees its GPU as number 0 (SLURM 22.05): others are invalid device ordinals.",
    fix="Ask with --gpus-per-node. local_rank % torch.cuda.device_count() finds the task's GPU, but NCCL then needs "
    "--gres-flags=allow-task-sharing to reach those of its peers (NVIDIA/nccl#1948, SchedMD 17875).",
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
#SBATCH --nodes=1 --ntasks-per-node=4 --gpus-per-task=1
srun python train.py
--- train.py
import torch
import torch.distributed as dist

def main():
    dist.init_process_group("nccl")
    local_rank = dist.get_rank() % torch.cuda.device_count()
    torch.cuda.set_device(local_rank)
    model = torch.nn.Linear(2, 2).cuda()
    if dist.get_rank() == 0:
        torch.save(model.state_dict(), "model.pt")

main()
""",
        """--- job.sh
#!/bin/bash
#SBATCH --nodes=1 --ntasks-per-node=4 --gpus-per-node=4
srun python train.py
--- train.py
import torch
import torch.distributed as dist

def main():
    dist.init_process_group("nccl")
    local_rank = dist.get_rank() % torch.cuda.device_count()
    torch.cuda.set_device(local_rank)
    model = torch.nn.Linear(2, 2).cuda()
    if local_rank == 0:
        torch.save(model.state_dict(), "model.pt")

main()
""",
    ),
)
