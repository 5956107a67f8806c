"""Lightning's Trainer says other sizes than the job."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from rankup.check.facts.job.job import Job, Launch
from rankup.check.facts.job.questions import nnodes, nproc
from rankup.check.facts.program.module import Call
from rankup.check.facts.program.program import Program
from rankup.check.facts.program.value import the_constant
from rankup.check.rule import Match, Rule
from rankup.findings.finding import Confidence, Severity

_TRAINERS = ("lightning.Trainer", "lightning.pytorch.Trainer", "pytorch_lightning.Trainer")


def find(job: Job) -> Iterator[Match]:
    for launch in job.launches:
        program, step = launch.program, launch.step
        if program is None or (step is not None and (step.in_loop and not launch.is_torchrun)):
            continue
        trainers = program.named(*_TRAINERS)
        if len(trainers) != 1 or trainers[0].spread or trainers[0].keywords & {"plugins", "fast_dev_run"}:
            continue
        devices, nodes = _sizes(program, trainers[0])
        if launch.is_torchrun:
            yield from _by_torchrun(job, launch, devices, nodes)
        elif step is not None and step.kind == "srun" and not launch.forms_ranks:
            yield from _by_srun(job, launch, devices, nodes)


def _sizes(program: Program, trainer: Call) -> tuple[int | None, int | None]:
    """The constants ``devices`` and ``num_nodes``; None if they come from elsewhere."""
    given = trainer.argument("devices")
    devices = the_constant(program.values.of(given, trainer.scope))
    if isinstance(given, ast.List):  # devices=[0, 1, 2, 3]
        devices = len(given.elts)
    nodes = the_constant(program.value(trainer, "num_nodes")) if "num_nodes" in trainer.keywords else 1
    return (
        devices if isinstance(devices, int) and not isinstance(devices, bool) and devices > 0 else None,
        nodes if isinstance(nodes, int) else None,
    )


def _by_srun(job: Job, launch: Launch, devices: int | None, nodes: int | None) -> Iterator[Match]:
    step, request = launch.step, job.request
    assert step is not None and launch.program is not None
    path = launch.program.document.path
    if nodes is not None and step.nodes is not None and nodes != step.nodes and "nodes" not in step.options:
        said = f"Trainer(num_nodes={nodes})" if nodes != 1 else "Trainer without num_nodes, which is then 1"
        yield Match(job.document, launch.span, f"The job has {step.nodes} nodes; {path} has {said}.")
    given = request.get("ntasks-per-node")
    if devices is None or given is None or given.number is None or "ntasks-per-node" in step.options:
        return
    if given.number != devices:
        yield Match(
            job.document,
            launch.span,
            f"The tasks per node are {given.number}; {path} has Trainer(devices={devices}).",
        )


def _by_torchrun(job: Job, launch: Launch, devices: int | None, nodes: int | None) -> Iterator[Match]:
    count, each = nnodes(job, launch), nproc(job, launch)
    if None in (devices, nodes, count, each):
        return
    assert devices and nodes and count and each and launch.program is not None
    if devices * nodes != count * each:
        yield Match(
            job.document,
            launch.span,
            f"torchrun makes {count} x {each} processes; {launch.program.document.path} has a Trainer for "
            f"{nodes} x {devices}.",
        )


RULE = Rule(
    code="RK167",
    name="lightning-sizes",
    severity=Severity.ERROR,
    confidence=Confidence.LIKELY,
    what="The devices or num_nodes of Lightning's Trainer are not those of the job.",
    why="Lightning compares them with SLURM's or torchrun's numbers, and ends with a ValueError: 'You set devices=8 in "
    "Lightning, but the number of tasks per node configured in SLURM does not match'.",
    fix="Make devices the tasks per node and num_nodes the number of nodes, for example from SLURM_NNODES.",
    find=find,
    fires=(
        """--- job.sh
#!/bin/bash
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=1
#SBATCH --gpus-per-node=8
srun python train.py
--- train.py
import lightning as L

trainer = L.Trainer(accelerator="gpu", devices=8, num_nodes=2, strategy="ddp")
trainer.fit(Model())
""",
        """--- job.sh
#!/bin/bash
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=4
#SBATCH --gpus-per-node=4
srun python train.py
--- train.py
import pytorch_lightning as pl

trainer = pl.Trainer(accelerator="gpu", devices=4, strategy="ddp")
trainer.fit(Model())
""",
    ),
    silent=(
        """--- job.sh
#!/bin/bash
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=4
#SBATCH --gpus-per-node=4
srun python train.py
--- train.py
import os
import lightning as L

trainer = L.Trainer(accelerator="gpu", devices=4, num_nodes=int(os.environ["SLURM_NNODES"]))
trainer.fit(Model())
""",
        """--- job.sh
#!/bin/bash
#SBATCH --nodes=1
#SBATCH --ntasks-per-node=4
#SBATCH --gpus-per-node=4
srun python train.py
--- train.py
import lightning as L

trainer = L.Trainer(accelerator="gpu", devices="auto")
trainer.fit(Model())
""",
    ),
)
