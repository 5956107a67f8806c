"""torchrun or accelerate starts more or fewer processes than the nodes have GPUs."""

from __future__ import annotations

import re
from collections.abc import Iterator

from rankup.check.facts.job.job import Job, Launch
from rankup.check.facts.job.questions import agents, devices, is_written, nnodes, nproc
from rankup.check.rule import Edit, Match, Rule, Safety
from rankup.findings.finding import Confidence, Severity

# A device by number, or a part of the model that is sent to one: ``.to(devices[1])``, ``.to(self.device1)``.
_DEVICE = re.compile(r"""["'](cuda:\d+)["']|\.(?:to|cuda)\(\s*((?!torch\.)[^(),\n]*\d[^(),\n]*)""")


def find(job: Job) -> Iterator[Match]:
    yield from _by_list(job)
    request = job.request
    gpus = request.gpus_per_node
    if request.scheduler != "slurm" or not gpus:
        return
    yield from _by_accelerate(job, gpus)
    for launch in agents(job):
        processes = nproc(job, launch)
        if processes is None or processes == gpus or not _uses_the_node(job, launch):
            continue
        value = launch.options.get("nproc_per_node")
        place = is_written(job.document, value) if value is not None else None
        edits = (Edit(place, "$SLURM_GPUS_ON_NODE"),) if place is not None and value is not None else ()
        span = launch.words["nproc_per_node"].span if value is not None else launch.span
        if value is not None and place is None:
            span = launch.span
        if processes > gpus:
            yield Match(
                job.document,
                span,
                f"{processes} processes per node, but the job asks for {gpus} GPU{'s' * (gpus > 1)} per node.",
                edits,
                severity=Severity.ERROR,
                why="The processes without a GPU of their own fail with an invalid device ordinal (PICK-pytorch#14).",
            )
        elif (
            (value is not None or launch.launcher == "torchrun")
            and not _others(job)
            and not _names_devices(launch)
            and not _is_compared(job, launch, gpus)
        ):
            yield Match(
                job.document,
                span,
                f"{processes} process{'es' * (processes > 1)} per node, but the job asks for {gpus} GPUs per node.",
                edits,
                confidence=Confidence.LIKELY,
            )


def _by_list(job: Job) -> Iterator[Match]:
    """More processes than CUDA_VISIBLE_DEVICES has GPUs."""
    for launch in agents(job):
        visible, processes = devices(launch.exported("CUDA_VISIBLE_DEVICES")), nproc(job, launch)
        if visible and processes and processes > len(visible):
            yield Match(
                job.document,
                launch.span,
                f"{processes} processes per node, but CUDA_VISIBLE_DEVICES shows them {len(visible)} "
                f"GPU{'s' * (len(visible) > 1)}.",
                severity=Severity.ERROR,
                confidence=Confidence.LIKELY,
                why="The processes without a GPU of their own fail with an invalid device ordinal.",
                fix="Remove CUDA_VISIBLE_DEVICES, which the scheduler sets, or start one process for each GPU in it.",
            )


def _by_accelerate(job: Job, gpus: int) -> Iterator[Match]:
    """The --num_processes of accelerate is the number of all processes, on all machines."""
    for launch in job.launches:
        if launch.launcher != "accelerate" or not _uses_the_node(job, launch):
            continue
        value = launch.options.get("num_processes")
        machines, processes = nnodes(job, launch), job.number(value)
        if value is None or not machines or machines == 1 or processes != gpus:
            continue
        place = is_written(job.document, value)
        yield Match(
            job.document,
            launch.words["num_processes"].span,
            f"{processes} processes in all on {machines} machines, but the job asks for {gpus} GPUs per node.",
            (Edit(place, f"$((SLURM_NNODES * {gpus}))"),) if place is not None else (),
            why="accelerate divides --num_processes by --num_machines: some GPUs of each node have no process.",
            fix="Give the number of all processes: nodes times GPUs per node.",
            confidence=Confidence.LIKELY,
        )


def _others(job: Job) -> bool:
    """Whether something else runs beside it, which may use the other GPUs."""
    return any(command.background and not command.in_output and command.argv for command in job.commands)


def _names_devices(launch: Launch) -> bool:
    """Whether one process of the program uses several GPUs: it names them, as a model in parts does, by texts that
    differ in a number."""
    modules = launch.program.modules if launch.program is not None else ()
    found = {"".join(match) for module in modules for match in _DEVICE.findall(module.document.text)}
    return len(found) > len({re.sub(r"\d+", "", device) for device in found})


def _is_compared(job: Job, launch: Launch, gpus: int) -> bool:
    """Whether the script also starts the same program on all GPUs: then it measures how the program scales."""
    return launch.program is not None and any(
        other.program is launch.program and nproc(job, other) == gpus for other in agents(job)
    )


def _uses_the_node(job: Job, launch: Launch) -> bool:
    """Whether this launch has the node's GPUs for itself, and uses GPUs."""
    if launch.command.background and sum(other.command.background for other in job.launches) > 1:
        return False
    if launch.exported("CUDA_VISIBLE_DEVICES") is not None or launch.command.in_loop:
        return False
    step = launch.step
    if step is not None and (
        (step.tasks_per_node or 1) > 1
        or step.options.keys() & {"gpus", "gres", "gpus-per-task", "gpus-per-node"}
    ):
        return False
    words = [word.known or "" for word in launch.arguments]
    return not any(word in ("gloo", "cpu", "--cpu", "--backend=gloo", "--device=cpu") for word in words)


RULE = Rule(
    code="RK106",
    name="nproc-not-gpus",
    severity=Severity.WARNING,
    confidence=Confidence.SURE,
    what="The --nproc_per_node of torchrun is a number that is not the number of GPUs that the job asks for.",
    why="It starts that many processes on each node, and each one uses a GPU: the others stay idle.",
    fix="Use --nproc_per_node=$SLURM_GPUS_ON_NODE, or the number of the directive.",
    find=find,
    safety=Safety.UNSAFE,
    fires=(
        """#!/bin/bash
#SBATCH --nodes=2 --ntasks-per-node=1 --gpus-per-node=4
srun bash -c 'accelerate launch --num_processes 4 --num_machines 2 --machine_rank $SLURM_NODEID --rdzv_backend c10d \\
    --main_process_ip $HEAD --main_process_port 29500 train.py'
""",
        """#!/bin/bash
#SBATCH --nodes=1
#SBATCH --gres=gpu:2
torchrun --standalone --nproc_per_node=4 train.py
""",
    ),
    silent=(
        """#!/bin/bash
#SBATCH --nodes=2 --ntasks-per-node=1 --gpus-per-node=4
srun bash -c 'accelerate launch --num_processes 8 --num_machines 2 --machine_rank $SLURM_NODEID --rdzv_backend c10d \\
    --main_process_ip $HEAD --main_process_port 29500 train.py'
""",
        """#!/bin/bash
#SBATCH --nodes=1
#SBATCH --gres=gpu:4
torchrun --standalone --nproc_per_node=4 train.py
""",
    ),
)
