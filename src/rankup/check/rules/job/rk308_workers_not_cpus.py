"""Data-loader workers and the cores of a node."""

from __future__ import annotations

from collections.abc import Iterator

from rankup.check.facts.job.job import Job
from rankup.check.rule import Match, Rule
from rankup.findings.finding import Confidence, Severity


def find(job: Job) -> Iterator[Match]:
    if not job.scheduler or job.request.exclusive:
        return
    for launch in job.launches:
        program, start = launch.program, launch.start
        cores, ranks = start.cpus_per_node, start.processes_per_node
        if program is None or not cores or not ranks:
            continue
        for _, workers in program.workers:
            name = program.document.path
            if workers * ranks > cores:
                yield Match(
                    job.document,
                    launch.span,
                    f"{name} starts {workers} workers on each of {ranks} rank{'s' * (ranks > 1)}: {workers * ranks} on "
                    f"{cores} cores.",
                    # A program often counts its own process: one worker too many for each rank costs little.
                    severity=Severity.NOTE if (workers - 1) * ranks <= cores else None,
                )
            elif workers == 0 and cores // ranks >= 4 and program.uses_cuda:
                yield Match(
                    job.document,
                    launch.span,
                    f"{name} loads its data in the rank itself (num_workers=0), and {cores // ranks} cores per rank "
                    "have little to do.",
                    severity=Severity.NOTE,
                    why="The GPU waits while the rank reads and decodes the next batch.",
                    fix="Set num_workers to the cores of a rank minus one.",
                )


RULE = Rule(
    code="RK308",
    name="workers-not-cpus",
    severity=Severity.WARNING,
    confidence=Confidence.LIKELY,
    what="The workers of the data loaders are more than the cores of the job on a node, or none.",
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
