"""A program that reads what torchrun sets, started without torchrun."""

from __future__ import annotations

from collections.abc import Iterator

from rankup.check.facts.job.job import Job, Launch
from rankup.check.facts.program.required import required_variables
from rankup.check.rule import Match, Rule
from rankup.findings.finding import Confidence, Severity

_BY_TORCHRUN = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")


def find(job: Job) -> Iterator[Match]:
    if not job.complete or job.sources_files:
        return
    for launch in job.launches:
        step, program = launch.step, launch.program
        if step is None or step.kind not in ("srun", "mpirun", "mpiexec") or launch.launcher != "python":
            continue
        if step.tasks == 1 or program is None or not program.whole or program.frameworks or program.spawns:
            continue
        missing = _missing(job, launch)
        if not missing:
            continue
        if len(program.inits) > 1:
            continue  # the arguments decide how it makes its group
        name = missing[0]
        module, node = required_variables(program)[name]
        line = module.line(getattr(node, "lineno", 0))
        yield Match(
            job.document,
            launch.span,
            f"{step.kind} does not set {_listed(missing)}; {module.document.path} needs {name} at {line}.",
        )


def _missing(job: Job, launch: Launch) -> list[str]:
    """The variables of torchrun that the program requires, and that neither it nor the script sets."""
    assert launch.program is not None
    required = required_variables(launch.program)
    return [name for name in _BY_TORCHRUN if name in required and name not in job.names]


def _listed(names: list[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


RULE = Rule(
    code="RK166",
    name="missing-rank-variables",
    severity=Severity.ERROR,
    confidence=Confidence.LIKELY,
    what="A step of srun or mpirun starts a program that reads RANK, LOCAL_RANK, MASTER_ADDR …, which nothing sets.",
    why="Only torchrun sets these. Each task ends with 'environment variable RANK expected, but not set' or with a "
    "KeyError.",
    fix="Set them in each task (srun bash -c 'export RANK=$SLURM_PROCID LOCAL_RANK=$SLURM_LOCALID; …') and the address "
    "before it, or start the program with torchrun.",
    find=find,
    fires=(
        """--- job.sh
#!/bin/bash
#SBATCH --nodes=2 --ntasks-per-node=4 --gpus-per-node=4
srun python train.py
--- train.py
import os
import torch
import torch.distributed as dist

torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
dist.init_process_group("nccl")
dist.destroy_process_group()
""",
        """--- job.sh
#!/bin/bash
#SBATCH --nodes=2 --ntasks-per-node=4 --gpus-per-node=4
srun python train.py
--- train.py
import os
import torch
import torch.distributed as dist

torch.cuda.set_device(int(os.environ["SLURM_LOCALID"]))
dist.init_process_group("nccl", rank=int(os.environ["SLURM_PROCID"]), world_size=int(os.environ["SLURM_NTASKS"]))
dist.destroy_process_group()
""",
    ),
    silent=(
        """--- job.sh
#!/bin/bash
#SBATCH --nodes=2 --ntasks-per-node=4 --gpus-per-node=4
export MASTER_ADDR=$(hostname) MASTER_PORT=12345
srun python train.py nccl
--- train.py
import os
import sys
import torch.distributed as dist

def by_mpi():
    dist.init_process_group("mpi")

def by_slurm():
    dist.init_process_group(
        "nccl", rank=int(os.environ["SLURM_PROCID"]), world_size=int(os.environ["SLURM_NTASKS"])
    )

if sys.argv[1] == "mpi":
    by_mpi()
else:
    by_slurm()
""",
        """--- job.sh
#!/bin/bash
#SBATCH --nodes=2 --ntasks-per-node=4 --gpus-per-node=4
srun python train.py --dist-url tcp://$(hostname):2345
--- train.py
import argparse
import os
import torch.distributed as dist

parser = argparse.ArgumentParser()
parser.add_argument("--dist-url", default="env://")
args = parser.parse_args()
rank, size = int(os.environ["SLURM_PROCID"]), int(os.environ["SLURM_NTASKS"])
dist.init_process_group("nccl", init_method=args.dist_url, rank=rank, world_size=size)
""",
    ),
)
