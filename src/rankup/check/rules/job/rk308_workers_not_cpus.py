"""Data-loader workers and the cores of a node."""

from __future__ import annotations

from collections.abc import Iterator

from rankup.check.facts.job.job import Job, Launch
from rankup.check.rule import Match, Rule
from rankup.findings.finding import Confidence, Severity

#: From so many cores of a rank on, a loader with one worker or none leaves most of them idle.
_MANY_CORES = 4


def find(job: Job) -> Iterator[Match]:
    if not job.scheduler or job.request.exclusive:
        return
    for launch in job.launches:
        program, cores = launch.program, _cores_per_rank(job, launch)
        if program is None or not cores:
            continue
        for _, workers in program.workers:
            name = program.document.path
            if workers > cores:
                yield Match(
                    job.document,
                    launch.span,
                    _too_many(launch, name, workers, cores),
                    # A program often counts its own process: one worker too many for each rank costs little.
                    severity=Severity.NOTE if workers - 1 <= cores else None,
                )
            elif workers <= 1 and cores >= _MANY_CORES and program.uses_cuda:
                how = f"by {workers} worker" if workers else "in the rank itself (num_workers=0)"
                yield Match(
                    job.document,
                    launch.span,
                    f"{name} loads its data {how}, and {int(cores)} cores per rank have little to do.",
                    severity=Severity.NOTE,
                    why="The GPU waits while the next batch is read and decoded.",
                    fix="Set num_workers to the cores of a rank minus one.",
                )


def _cores_per_rank(job: Job, launch: Launch) -> float | None:
    """The cores of a rank: those of its task, or its share of the node's."""
    step, start = launch.step, launch.start
    if job.scheduler == "slurm" and step is not None and step.kind == "srun" and not launch.forms_ranks:
        own = step.options.get("cpus-per-task")
        return job.number(own) if own is not None else job.request.cpus_per_task
    ranks = start.processes_per_node or start.gpus_per_node
    return start.cpus_per_node / ranks if start.cpus_per_node and ranks else None


def _too_many(launch: Launch, name: str, workers: int, cores: float) -> str:
    ranks = launch.start.processes_per_node
    if ranks is None:
        return f"{name} starts {workers} workers on each rank, which has {cores:g} core{'s' * (cores > 1)}."
    return (
        f"{name} starts {workers} workers on each of {ranks} rank{'s' * (ranks > 1)}: {workers * ranks} on "
        f"{cores * ranks:g} cores."
    )


RULE = Rule(
    code="RK308",
    name="workers-not-cpus",
    severity=Severity.WARNING,
    confidence=Confidence.LIKELY,
    what="The workers of a data loader are more than the cores of its rank, or almost none.",
    why="Too many workers wait for each other; PyTorch warns of it (its own suggestion is the number of cores).",
    fix="Set num_workers to the cores of a node divided by its ranks, or ask for more cores with --cpus-per-task.",
    find=find,
    fires=(
        """--- job.sh
#!/bin/bash
#SBATCH --nodes=1 --ntasks-per-node=1 --cpus-per-task=8 --gres=gpu:4
torchrun --standalone --nproc_per_node=4 train.py
--- train.py
from torch.utils.data import DataLoader

loader = DataLoader(dataset, batch_size=32, shuffle=True, num_workers=8)
for batch in loader:
    loss = model(batch)
    loss.backward()
""",
        """--- job.sh
#!/bin/bash
#SBATCH --nodes=2 --ntasks-per-node=4 --cpus-per-task=2 --gres=gpu:4
srun python train.py
--- train.py
from torch.utils.data import DataLoader

loader = DataLoader(dataset, batch_size=32, shuffle=True, num_workers=4)
for batch in loader:
    loss = model(batch)
    loss.backward()
""",
    ),
    silent=(
        """--- job.sh
#!/bin/bash
#SBATCH --nodes=1 --ntasks-per-node=1 --cpus-per-task=32 --gres=gpu:4
torchrun --standalone --nproc_per_node=4 train.py
--- train.py
from torch.utils.data import DataLoader

loader = DataLoader(dataset, batch_size=32, shuffle=True, num_workers=8)
for batch in loader:
    loss = model(batch)
    loss.backward()
""",
        """--- job.sh
#!/bin/bash
#SBATCH --nodes=1 --gres=gpu:4
torchrun --standalone --nproc_per_node=4 train.py
--- train.py
from torch.utils.data import DataLoader

loader = DataLoader(dataset, batch_size=32, shuffle=True, num_workers=16)
for batch in loader:
    loss = model(batch)
    loss.backward()
""",
    ),
)
