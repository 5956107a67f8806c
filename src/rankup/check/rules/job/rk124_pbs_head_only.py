"""torchrun on the first host alone, in a PBS job of several hosts."""

from __future__ import annotations

from collections.abc import Iterator

from rankup.check.facts.job.job import Job
from rankup.check.facts.job.questions import fans_out, nnodes, nproc, uses_torch
from rankup.check.rule import Match, Rule
from rankup.findings.finding import Confidence, Severity


def find(job: Job) -> Iterator[Match]:
    request = job.request
    if job.scheduler not in ("pbs", "torque") or not request.many_nodes or not job.complete or fans_out(job):
        return
    for launch in job.launches:
        if launch.step is not None or launch.command.in_loop:
            continue
        if not launch.is_torchrun and not (launch.launcher == "accelerate" and "nnodes" in launch.options):
            if (
                launch.launcher == "python"
                and uses_torch(launch)
                and (request.gpus_per_node or 0) > 0
                and _apart(job)
            ):
                yield Match(
                    job.document,
                    launch.span,
                    f"The job has {request.nodes} nodes, and python runs on the first one only.",
                    severity=Severity.WARNING,
                    confidence=Confidence.LIKELY,
                    why="Without a node launcher a command of the job script runs on the first node.",
                )
            continue
        count, processes, gpus = nnodes(job, launch), nproc(job, launch), request.gpus_per_node
        if count is None or count > 1:
            sure = count is not None
            yield Match(
                job.document,
                launch.span,
                f"{launch.launcher} is started on the first of {request.nodes} nodes only, and waits for agents on the "
                "others.",
                severity=None if sure else Severity.WARNING,
                confidence=None if sure else Confidence.LIKELY,
            )
        elif _apart(job) or (gpus and processes is not None and processes <= gpus):
            yield Match(
                job.document,
                launch.span,
                f"The job asks for {request.nodes} nodes or chunks, and {launch.launcher} runs on the first one only.",
                severity=Severity.WARNING,
                confidence=Confidence.LIKELY,
                why="A command of the script runs on the first node; without a node launcher the others do nothing.",
            )


def _apart(job: Job) -> bool:
    """Whether the chunks are certainly on different nodes."""
    return job.scheduler == "torque" or not job.request.packed


RULE = Rule(
    code="RK124",
    name="pbs-head-only",
    severity=Severity.ERROR,
    confidence=Confidence.SURE,
    what="A PBS job of several nodes starts torchrun without mpiexec, pbsdsh, pbs_tmrsh or ssh.",
    why="The job script runs on the first node. The agent there waits for the others until the rendezvous times out.",
    fix="Start one agent per node: pbsdsh (with mpiprocs=1), mpiexec --ppn 1, pbs_tmrsh or ssh.",
    find=find,
    fires=(
        """#!/bin/bash
#PBS -l select=2:ncpus=32:ngpus=4
#PBS -l place=scatter
cd "$PBS_O_WORKDIR"
torchrun --nnodes=2 --nproc_per_node=4 --rdzv_backend=c10d --rdzv_endpoint=$(hostname):29500 train.py
""",
        """#!/bin/bash
#PBS -l nodes=4:ppn=8:gpus=2
cd $PBS_O_WORKDIR
python -m torch.distributed.launch --nproc_per_node=2 train.py
""",
    ),
    silent=(
        """#!/bin/bash
#PBS -l select=2:ncpus=32:ngpus=4:mpiprocs=1
cd "$PBS_O_WORKDIR"
head=$(hostname)
mpiexec -n 2 --ppn 1 torchrun --nnodes=2 --nproc_per_node=4 --rdzv_backend=c10d --rdzv_endpoint=$head:29500 train.py
""",
        """#!/bin/bash
#PBS -l select=1:ncpus=32:ngpus=4
cd "$PBS_O_WORKDIR"
torchrun --standalone --nproc_per_node=4 train.py
""",
    ),
)
