"""--nnodes that is the number of processes."""

from __future__ import annotations

from collections.abc import Iterator

from rankup.check.facts.job import Job
from rankup.check.facts.job_commands import Value, Variable
from rankup.check.rule import Match, Rule
from rankup.findings.finding import Confidence, Severity

_PROCESSES = {
    "WORLD_SIZE",
    "SLURM_NTASKS",
    "SLURM_NPROCS",
    "NUM_PROCESSES",
    "OMPI_COMM_WORLD_SIZE",
    "PMI_SIZE",
}


def find(job: Job) -> Iterator[Match]:
    nodes = job.request.nodes
    for launch in job.launches:
        value = launch.options.get("nnodes")
        if value is None or not nodes or not (launch.is_torchrun or launch.launcher == "accelerate"):
            continue
        name = _name(job, value)
        if name is None or (launch.step is not None and launch.step.tasks == _count(job, name, value)):
            continue
        count = _count(job, name, value)
        if count is not None and count != nodes:
            yield Match(
                job.document,
                launch.words["nnodes"].span,
                f"--nnodes is {name}, which is {count}: that is the number of processes, not of the {nodes} nodes.",
            )


def _name(job: Job, value: Value) -> str | None:
    """The variable of processes that stands there, before the script's values were put in its place."""
    for atom in value.atoms:
        if isinstance(atom, Variable) and atom.name in _PROCESSES:
            return atom.name
    for name in _PROCESSES & job.assigned.keys():
        if any(binding.value.atoms and _same(binding.value, value) for binding in job.assigned[name]):
            return name
    return None


def _same(one: Value, other: Value) -> bool:
    return len(one.atoms) == len(other.atoms) and all(
        a.span == b.span for a, b in zip(one.atoms, other.atoms, strict=True)
    )


def _count(job: Job, name: str, value: Value) -> int | None:
    return job.number(value) if job.number(value) is not None else job.request.number(name)


RULE = Rule(
    code="RK142",
    name="nnodes-is-world-size",
    severity=Severity.ERROR,
    confidence=Confidence.SURE,
    what="The --nnodes of torchrun is the number of processes (WORLD_SIZE, SLURM_NTASKS).",
    why="It waits for as many agents as there are processes, and each node has one agent only.",
    fix="Use --nnodes=$SLURM_NNODES.",
    find=find,
    fires=(
        """#!/bin/bash
#SBATCH --nodes=2 --ntasks-per-node=1 --gpus-per-node=4
export WORLD_SIZE=$((SLURM_NNODES * 4))
srun torchrun --nnodes=$WORLD_SIZE --nproc_per_node=4 --rdzv_backend=c10d --rdzv_endpoint=$HEAD:29500 train.py
""",
        """#!/bin/bash
#SBATCH --nodes=2 --ntasks-per-node=4 --gpus-per-node=4
srun --ntasks=2 --ntasks-per-node=1 torchrun --nnodes=$SLURM_NTASKS --nproc_per_node=4 --rdzv_backend=c10d train.py
""",
    ),
    silent=(
        """#!/bin/bash
#SBATCH --nodes=2 --ntasks-per-node=1 --gpus-per-node=4
srun torchrun --nnodes=$SLURM_NTASKS --nproc_per_node=4 --rdzv_backend=c10d --rdzv_endpoint=$HEAD:29500 train.py
""",
        """#!/bin/bash
# one of a platform's pods, in which WORLD_SIZE is the number of pods
torchrun --nnodes=$WORLD_SIZE --node_rank=$RANK --nproc_per_node=8 --master_addr=$MASTER_ADDR train.py
""",
    ),
)
