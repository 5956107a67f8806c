"""torchrun on the batch host alone, in a job of several nodes."""

from __future__ import annotations

from collections.abc import Iterator

from rankup.check.document import Span
from rankup.check.facts.job.job import Job, Launch
from rankup.check.facts.job.questions import lacks_srun, nnodes
from rankup.check.rule import Edit, Match, Rule, Safety
from rankup.findings.finding import Confidence, Severity


def find(job: Job) -> Iterator[Match]:
    for launch in job.launches:
        if not _forms_ranks_on_nodes(launch) or not lacks_srun(job, launch):
            continue
        nodes, count = job.request.nodes, nnodes(job, launch)
        at = launch.command.argv[0].span.start
        # A command that comes from a variable or a function is written elsewhere, so `srun` cannot be put before it.
        edits = (Edit(Span(at, at), "srun --ntasks-per-node=1 "),) if _is_written(job, launch, at) else ()
        if count is not None and count < 2:
            yield Match(
                job.document,
                launch.span,
                f"The job has {nodes} nodes, and {launch.launcher} runs on the first one only.",
                edits,
                severity=Severity.WARNING,
                confidence=Confidence.LIKELY,
                why="Without srun a command of the batch script runs on the first node. The other nodes do nothing.",
            )
        else:
            yield Match(
                job.document,
                launch.span,
                f"{launch.launcher} is started on the first of {nodes} nodes only, and waits for agents on the others.",
                edits,
                severity=Severity.ERROR if count is not None else Severity.WARNING,
                confidence=Confidence.SURE if count is not None else Confidence.LIKELY,
            )


def _forms_ranks_on_nodes(launch: Launch) -> bool:
    if launch.is_torchrun:
        return True
    if launch.launcher == "deepspeed":  # fans_out is false: it has no host file
        return "nnodes" not in launch.options
    return launch.launcher == "accelerate" and "nnodes" in launch.options


def _is_written(job: Job, launch: Launch, at: int) -> bool:
    head = launch.command.argv[0].known or ""
    return bool(head) and job.document[Span(at, at + len(head))] == head


RULE = Rule(
    code="RK101",
    name="no-srun",
    severity=Severity.ERROR,
    confidence=Confidence.SURE,
    what="A job of several nodes starts torchrun (or accelerate) in the batch script, without srun.",
    why=(
        "The batch script runs on the first node. The agent there waits for those of the other nodes until the "
        "rendezvous times out (huggingface/accelerate#2816)."
    ),
    fix="Put `srun --ntasks-per-node=1` before it, and let each node expand its own SLURM_NODEID (bash -c '…').",
    find=find,
    safety=Safety.UNSAFE,
    fires=(
        """#!/bin/bash
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=1
#SBATCH --gpus-per-node=4
export MASTER_ADDR=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)
torchrun --nnodes=2 --nproc_per_node=4 --rdzv_backend=c10d --rdzv_endpoint=$MASTER_ADDR:29500 train.py
""",
        """#!/bin/bash
#SBATCH -N 4 -n 4
#SBATCH --gres=gpu:4
head=$(srun --nodes=1 --ntasks=1 hostname)
python -m torch.distributed.run --nnodes $SLURM_NNODES --nproc_per_node 4 \\
  --rdzv_backend c10d --rdzv_endpoint $head:29500 train.py
""",
    ),
    silent=(
        """#!/bin/bash
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=1
srun bash -c 'torchrun --nnodes=2 --nproc_per_node=4 --node_rank=$SLURM_NODEID --master_addr=$MASTER_ADDR train.py'
""",
        """#!/bin/bash
#SBATCH --nodes=1
#SBATCH --gres=gpu:4
torchrun --standalone --nproc_per_node=4 train.py
""",
    ),
)
