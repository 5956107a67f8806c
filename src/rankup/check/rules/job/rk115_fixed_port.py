"""A port that is the same in all jobs, on nodes that jobs share."""

from __future__ import annotations

from collections.abc import Iterator

from rankup.check.document import Span
from rankup.check.facts.job.commands import Value
from rankup.check.facts.job.job import Job, Launch
from rankup.check.facts.job.questions import endpoint, port_of
from rankup.check.rule import Match, Rule
from rankup.findings.finding import Confidence, Severity


def find(job: Job) -> Iterator[Match]:
    if not job.scheduler or job.request.exclusive or _whole_nodes(job):
        return
    seen: set[str] = set()
    for launch in job.launches:
        if "standalone" in launch.options:
            continue
        for name, value, port in _ports(launch):
            if port.isdigit() and int(port) > 0 and port not in seen:
                seen.add(port)
                yield Match(
                    job.document,
                    _place(job, launch, name, value),
                    f"The port {port} of {name} is the same in every job.",
                )
    for command in job.commands:
        for value in command.argv[1:]:
            port = port_of(value) or ""
            if "tcp://" in value.head and port.isdigit() and int(port) > 0 and port not in seen:
                seen.add(port)
                yield Match(
                    job.document, command.span, f"The port {port} of tcp:// is the same in every job."
                )


def _place(job: Job, launch: Launch, name: str, value: Value) -> Span:
    """Where the port stands, if it stands in the script as it is; else the option."""
    last = value.atoms[-1].span
    if last.end > last.start and job.document[last].endswith(value.tail[-1:] or "?"):
        return last
    word = launch.words.get(name.lstrip("-"))
    return word.span if word is not None else launch.span


def _ports(launch: Launch) -> Iterator[tuple[str, Value, str]]:
    value = launch.options.get("master_port")
    if value is not None:
        yield "--master_port", value, value.known or ""
    found = endpoint(launch)
    if found is not None and found[0] == "rdzv_endpoint":
        yield "--rdzv_endpoint", found[1], port_of(found[1]) or ""
    exported = launch.exported("MASTER_PORT")
    if exported is not None and not launch.forms_ranks:
        yield "MASTER_PORT", exported, exported.known or ""


def _whole_nodes(job: Job) -> bool:
    """Whether the job certainly has its nodes for itself."""
    site = job.site
    if site is not None and site.node.gpus:
        return job.request.gpus_per_node == site.node.gpus
    memory = job.request.by_name.get("mem")
    return (job.request.gpus_per_node or 0) >= 8 or (memory is not None and memory.value == "0")


RULE = Rule(
    code="RK115",
    name="fixed-port",
    severity=Severity.NOTE,
    confidence=Confidence.LIKELY,
    what="The port of the rendezvous is a number in the script, and the nodes may be shared with other jobs.",
    why="A second job on the same node fails with EADDRINUSE, or two jobs meet (EleutherAI/gpt-neox#768).",
    fix="Derive it from the job: MASTER_PORT=$((10000 + SLURM_JOB_ID % 20000)); on one node use --standalone.",
    find=find,
    fires=(
        """#!/bin/bash
#SBATCH --nodes=1 --gres=gpu:2
torchrun --nproc_per_node=2 --master_port=29500 train.py
""",
        """#!/bin/bash
#SBATCH --nodes=2 --ntasks-per-node=2 --gres=gpu:2
export MASTER_ADDR=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)
export MASTER_PORT=12340
srun python train.py
""",
    ),
    silent=(
        """#!/bin/bash
#SBATCH --nodes=1 --gres=gpu:2
torchrun --nproc_per_node=2 --master_port=$((10000 + SLURM_JOB_ID % 20000)) train.py
""",
        """#!/bin/bash
#SBATCH --nodes=2 --exclusive
srun torchrun --nnodes=2 --rdzv_backend=c10d --rdzv_endpoint=$HEAD:29500 train.py
""",
    ),
)
