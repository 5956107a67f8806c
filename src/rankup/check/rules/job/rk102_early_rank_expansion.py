"""A rank variable that the batch shell expands before srun starts the tasks."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from rankup.check.facts.job.commands import Value, Variable
from rankup.check.facts.job.job import Job, Launch
from rankup.check.facts.job.questions import RANK_VARIABLES, is_many, rank_variables, uses_c10d
from rankup.check.facts.program.module import Module
from rankup.check.facts.program.required import of_group
from rankup.check.rule import Match, Rule
from rankup.findings.finding import Confidence, Severity

_OPTIONS = ("node_rank", "rank", "local_rank", "global_rank", "machine_rank", "rank_id", "nodeid", "node_id")
#: What a program reads as its rank, if no launcher sets it.
_ENVIRONMENT = ("RANK", "LOCAL_RANK", "NODE_RANK", "GLOBAL_RANK", "GROUP_RANK")


def find(job: Job) -> Iterator[Match]:
    for launch in job.launches:
        step = launch.step
        if (
            step is None
            or step.in_loop
            or not (is_many(step) or (step.tasks is None and job.request.many_nodes))
        ):
            continue
        if step.tasks == 1:
            continue
        for option, value in _ranks(launch):
            for variable in rank_variables(value):
                yield _match(job, variable, f"--{option}", step.kind)
        if not launch.forms_ranks:
            yield from _exported(job, launch, step.kind)


def _ranks(launch: Launch) -> Iterator[tuple[str, Value]]:
    """The options that say a rank: the launcher's own and the program's."""
    if "node_rank" in launch.options and not uses_c10d(launch):
        yield "node_rank", launch.options["node_rank"]
    if launch.forms_ranks:
        return
    words = launch.arguments
    for index, word in enumerate(words):
        name, equals, _ = word.head.partition("=")
        option = name.lstrip("-").replace("-", "_").lower()
        if name.startswith("--") and option in _OPTIONS:
            if equals:
                yield option, word.after(len(name) + 1)
            elif index + 1 < len(words):
                yield option, words[index + 1]


def _exported(job: Job, launch: Launch, kind: str) -> Iterator[Match]:
    for name in _ENVIRONMENT:
        value = launch.exported(name)
        read = _is_read(launch, name)
        for variable in rank_variables(value) if value is not None else ():
            found = _match(job, variable, name, kind)
            confidence = None if read or launch.script else Confidence.LIKELY
            if read is False:
                message = found.message.removesuffix(".") + ", and this program does not read it."
                found = replace(found, message=message, severity=Severity.NOTE)
            yield replace(found, confidence=confidence)


def _is_read(launch: Launch, name: str) -> bool | None:
    """Whether the program reads a variable of the environment, as far as its text tells; None: it is not known."""
    program = launch.program
    if program is None or not program.whole or program.frameworks:
        return None
    if any(_names(module, name) for module in program.modules):
        return True
    groups = [required for call in program.inits for required in of_group(program, call)]
    return name in groups


def _names(module: Module, name: str) -> bool:
    return f'"{name}"' in module.document.text or f"'{name}'" in module.document.text


def _match(job: Job, variable: Variable, target: str, kind: str) -> Match:
    state = RANK_VARIABLES[variable.name]
    return Match(
        job.document,
        variable.span,
        f"${variable.name} is expanded by the batch shell, where it is {state}: "
        f"{target} is the same for all tasks of {kind}.",
    )


RULE = Rule(
    code="RK102",
    name="early-rank-expansion",
    severity=Severity.ERROR,
    confidence=Confidence.SURE,
    what="A rank variable (SLURM_NODEID, SLURM_PROCID …) is expanded in the batch shell, before the tasks are started.",
    why=(
        "The batch shell replaces the variable before srun or mpirun starts: each task gets rank 0 (or nothing), and "
        "the rendezvous fails or hangs (huggingface/accelerate#2816; reproduced on SLURM 22.05)."
    ),
    fix="Let each task expand it: srun bash -c '… --node_rank=$SLURM_NODEID …' with single quotes, or a script file.",
    find=find,
    fires=(
        """#!/bin/bash
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=1
srun torchrun --nnodes=2 --nproc_per_node=4 --node_rank=$SLURM_NODEID --master_addr=$MASTER_ADDR train.py
""",
        """#!/bin/bash
#SBATCH --nodes=2 --ntasks-per-node=1
export NODE_RANK=$SLURM_NODEID
srun bash -c "torchrun --nnodes=2 --nproc_per_node=4 --node_rank=$NODE_RANK --master_addr=$MASTER_ADDR train.py"
""",
    ),
    silent=(
        """#!/bin/bash
#SBATCH --nodes=2 --ntasks-per-node=4 --gpus-per-node=4
export MASTER_ADDR=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1) MASTER_PORT=29500
srun bash -c "RANK=\\$SLURM_PROCID LOCAL_RANK=\\$SLURM_LOCALID python train.py"
""",
        """#!/bin/bash
#SBATCH --nodes=2 --ntasks-per-node=1
srun bash -c 'torchrun --nnodes=2 --nproc_per_node=4 --node_rank=$SLURM_NODEID --master_addr=$MASTER_ADDR train.py'
""",
    ),
)
