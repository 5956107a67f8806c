"""--node_rank that is ignored, or that is the same on all nodes."""

from __future__ import annotations

from collections.abc import Iterator

from rankup.check.document import Span
from rankup.check.facts.job.job import Job, Launch
from rankup.check.facts.job.questions import nnodes, uses_c10d
from rankup.check.rule import Edit, Match, Rule, Safety
from rankup.findings.finding import Confidence, Severity


def find(job: Job) -> Iterator[Match]:
    for launch in job.launches:
        rank = launch.options.get("node_rank")
        if rank is None or not (launch.is_torchrun or launch.launcher == "accelerate"):
            continue
        if launch.launcher == "torchrun" and uses_c10d(launch):
            yield Match(
                job.document,
                launch.words["node_rank"].span,
                "--node_rank has no effect with a c10d rendezvous: nodes are numbered as they arrive.",
                _removed(job, launch),
                severity=Severity.NOTE,
            )
        elif not uses_c10d(launch) and _same_everywhere(job, launch):
            yield Match(
                job.document,
                launch.words["node_rank"].span,
                f"Every node is told the same rank, {rank.text}: {job.document[launch.words['node_rank'].span]}.",
                severity=Severity.ERROR,
                why="With a static rendezvous each agent needs a rank of its own: others are refused, or all wait.",
                fix="Use srun … bash -c '… --node_rank=$SLURM_NODEID …', which each node expands for itself.",
            )


def _same_everywhere(job: Job, launch: Launch) -> bool:
    step, rank = launch.step, launch.options["node_rank"].known
    if step is None or step.in_loop or (step.nodes or 0) < 2 or rank is None or not rank.isdigit():
        return False
    return (nnodes(job, launch) or 0) > 1


def _removed(job: Job, launch: Launch) -> tuple[Edit, ...]:
    """Without the option, if it stands in the script as one piece."""
    word, value = launch.words["node_rank"].span, launch.options["node_rank"].span
    text = job.document.text
    end = max(word.end, value.end)
    shown = text[word.start : end]
    start = word.start
    if not shown.startswith("--node") or "\n" in shown or text[end : end + 1] not in (" ", "\n", ""):
        return ()
    while start and text[start - 1] == " ":
        start -= 1
    if start == word.start or text[start - 1] == "\n":
        return ()
    return (Edit(Span(start, end), ""),)


RULE = Rule(
    code="RK103",
    name="inert-node-rank",
    severity=Severity.NOTE,
    confidence=Confidence.SURE,
    what="The option --node_rank is given where it has no effect, or is the same constant on all nodes.",
    why="The launcher reads --node_rank for a static rendezvous only; c10d numbers nodes as they arrive.",
    fix="Remove --node_rank, or use --rdzv_backend=static with --master_addr and a rank of each node's own.",
    find=find,
    safety=Safety.SAFE,
    fires=(
        """#!/bin/bash
#SBATCH --nodes=2 --ntasks-per-node=1
srun bash -c 'torchrun --nnodes=2 --node_rank=$SLURM_NODEID --rdzv_backend=c10d --rdzv_endpoint=$HEAD:29500 train.py'
""",
        """#!/bin/bash
#SBATCH --nodes=2 --ntasks-per-node=1
srun torchrun --nnodes=2 --nproc_per_node=4 --node_rank 3 --rdzv_backend c10d --rdzv_endpoint $HEAD:29500 train.py
""",
    ),
    silent=(
        """#!/bin/bash
#SBATCH --nodes=2 --ntasks-per-node=1
srun bash -c 'torchrun --nnodes=2 --nproc_per_node=4 --node_rank=$SLURM_NODEID --master_addr=$HEAD train.py'
""",
        """#!/bin/bash
#SBATCH --nodes=1
torchrun --nnodes=1 --node_rank=0 --nproc_per_node=4 train.py
""",
    ),
)
