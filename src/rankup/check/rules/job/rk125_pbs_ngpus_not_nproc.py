"""torchrun's processes per node and the GPUs of a PBS chunk."""

from __future__ import annotations

from collections.abc import Iterator

from rankup.check.facts.job.job import Job
from rankup.check.facts.job.questions import agents, is_written, nproc
from rankup.check.rule import Edit, Match, Rule, Safety
from rankup.findings.finding import Confidence, Severity


def find(job: Job) -> Iterator[Match]:
    request = job.request
    gpus = request.gpus_per_node
    if job.scheduler not in ("pbs", "torque") or not gpus:
        return
    for launch in agents(job):
        value, processes = launch.options.get("nproc_per_node"), nproc(job, launch)
        if value is None or processes is None or processes == gpus or launch.exported("CUDA_VISIBLE_DEVICES"):
            continue
        if launch.command.background and launch.step is None:
            continue
        if launch.step is not None and (launch.step.tasks_per_node or 1) > 1:
            continue
        if request.packed and (request.nodes or 1) > 1:
            # Several chunks may share a node, and its GPUs add up.
            if processes > gpus * (request.nodes or 1):
                pass
            elif processes > gpus and processes % gpus == 0:
                continue
        place = is_written(job.document, value)
        span = launch.words["nproc_per_node"].span if place is not None else launch.span
        more = processes > gpus
        yield Match(
            job.document,
            span,
            f"{processes} process{'es' * (processes > 1)} per node, but the chunk has ngpus={gpus}."
            if job.scheduler == "pbs"
            else f"{processes} process{'es' * (processes > 1)} per node, but the job asks for gpus={gpus}.",
            (Edit(place, str(gpus)),) if place is not None else (),
            severity=Severity.ERROR if more else None,
            confidence=None if more else Confidence.LIKELY,
            why="The processes without a GPU of their own fail with an invalid device ordinal."
            if more
            else None,
        )


RULE = Rule(
    code="RK125",
    name="pbs-ngpus-not-nproc",
    severity=Severity.WARNING,
    confidence=Confidence.SURE,
    what="The --nproc_per_node of torchrun is not the number of GPUs in PBS's select (or Torque's nodes).",
    why="Each process uses one GPU: the other GPUs of the chunk stay idle.",
    fix="Make ngpus of the chunk and --nproc_per_node the same number.",
    find=find,
    safety=Safety.UNSAFE,
    fires=(
        """#!/bin/bash
#PBS -l select=1:ncpus=16:ngpus=2
cd "$PBS_O_WORKDIR"
torchrun --standalone --nproc_per_node=4 train.py
""",
        """#!/bin/bash
#PBS -l nodes=1:ppn=16:gpus=4
cd $PBS_O_WORKDIR
torchrun --standalone --nproc_per_node=2 train.py
""",
    ),
    silent=(
        """#!/bin/bash
#PBS -l select=1:ncpus=16:ngpus=4
cd "$PBS_O_WORKDIR"
torchrun --standalone --nproc_per_node=4 train.py
""",
        """#!/bin/bash
#PBS -l select=4:ncpus=8:ngpus=1
cd "$PBS_O_WORKDIR"
torchrun --standalone --nproc_per_node=4 train.py
""",
    ),
)
