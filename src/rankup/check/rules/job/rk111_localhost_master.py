"""Agents or ranks on several nodes that meet at localhost."""

from __future__ import annotations

from collections.abc import Iterator

from rankup.check.document import Span
from rankup.check.facts.job.commands import Value, Variable
from rankup.check.facts.job.job import Job, Launch
from rankup.check.facts.job.questions import LOCAL, endpoint, host_of, lacks_srun, nnodes, outputs_of, trains
from rankup.check.rule import Edit, Match, Rule, Safety
from rankup.findings.finding import Confidence, Severity

_FIRST = '$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)'


def find(job: Job) -> Iterator[Match]:
    for launch in job.launches:
        step = launch.step
        if step is None:
            if launch.is_torchrun and lacks_srun(job, launch):
                yield from _of_launcher(job, launch, job.request.nodes)
            continue
        if (step.nodes or 0) < 2 or step.in_loop:
            continue
        if launch.forms_ranks:
            if (nnodes(job, launch) or 0) > 1 or "nnodes" in launch.options:
                yield from _of_launcher(job, launch, step.nodes)
        elif trains(job, launch):
            value = launch.exported("MASTER_ADDR")
            if value is None:
                continue
            if value.known in LOCAL:
                yield _match(job, value, "MASTER_ADDR", str(value.known), step.nodes)
            for output, command in outputs_of(value, "hostname"):
                if output.shell.step is not None and not command.pipe:
                    yield Match(
                        job.document,
                        output.span,
                        f"Each task on the {step.nodes} nodes sets MASTER_ADDR to its own host.",
                    )


def _of_launcher(job: Job, launch: Launch, nodes: int | None) -> Iterator[Match]:
    if nnodes(job, launch) == 1:
        return
    found = endpoint(launch)
    if found is None:
        return
    option, value = found
    host = host_of(value)
    if host in LOCAL:
        yield _match(job, value, f"--{option}", str(host), nodes)
        return
    for output, command in outputs_of(value, "hostname"):
        if output.shell.step is not None and not command.pipe:
            yield Match(
                job.document,
                output.span,
                f"Each of the {nodes} nodes expands $(hostname) for itself, and waits at its own --{option}.",
                why="Each agent waits at its own address for the others, until the rendezvous times out.",
            )
            return
    for atom in value.atoms:
        default = _default(job, atom) if isinstance(atom, Variable) else None
        if isinstance(atom, Variable) and default in LOCAL:
            yield Match(
                job.document,
                atom.span,
                f"{atom.name} is not set in this script, so --{option} is {default} on all {nodes} nodes.",
                confidence=Confidence.LIKELY,
            )


def _default(job: Job, variable: Variable) -> str | None:
    """What ``${NAME:-default}`` is, if the script never assigns NAME."""
    if (
        variable.default is None
        or not job.complete
        or variable.name in job.assigned
        or variable.name.startswith("SLURM")
    ):
        return None
    return variable.default.known


def _match(job: Job, value: Value, option: str, host: str, nodes: int | None) -> Match:
    return Match(
        job.document,
        value.span,
        f"{option} is {host}, but {nodes} nodes take part: each node means itself.",
        _edits(job, value, host),
    )


def _edits(job: Job, value: Value, host: str) -> tuple[Edit, ...]:
    """The first node in its place, if the batch shell expands it there."""
    start = value.span.start
    if job.scheduler != "slurm" or job.document[Span(start, start + len(host))] != host:
        return ()
    before = job.document.text[max(0, start - 13) : start]
    if not before.rstrip("\"'").endswith("MASTER_ADDR="):
        return ()
    return (Edit(Span(start, start + len(host)), _FIRST),)


RULE = Rule(
    code="RK111",
    name="localhost-master",
    severity=Severity.ERROR,
    confidence=Confidence.SURE,
    what="The ranks of several nodes are to meet at localhost, or each at its own host name.",
    why="Each node looks for rank 0 on itself. Only the first node finds it; the others wait until the timeout.",
    fix='Use the first node: export MASTER_ADDR=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1).',
    find=find,
    safety=Safety.SAFE,
    fires=(
        """#!/bin/bash
#SBATCH --nodes=2 --ntasks-per-node=1
export MASTER_ADDR=localhost
srun bash -c 'torchrun --nnodes=2 --node_rank=$SLURM_NODEID --master_addr=$MASTER_ADDR --master_port=29500 train.py'
""",
        """#!/bin/bash
#SBATCH --nodes=2 --ntasks-per-node=4 --gpus-per-node=4
export MASTER_ADDR=127.0.0.1
export MASTER_PORT=29500
srun python train.py
""",
    ),
    silent=(
        """#!/bin/bash
#SBATCH --nodes=1 --ntasks-per-node=4
export MASTER_ADDR=localhost MASTER_PORT=29500
srun python train.py
""",
        """#!/bin/bash
#SBATCH --nodes=2 --ntasks-per-node=1
srun torchrun --nnodes=1 --nproc_per_node=4 --rdzv_backend=c10d --rdzv_endpoint=localhost:0 each_on_its_own.py
""",
    ),
)
