"""A program that reads the variables of another launcher than that which starts its ranks."""

from __future__ import annotations

from collections.abc import Iterator

from rankup.check.facts.job.job import Job, Launch
from rankup.check.facts.program.names import LOCAL_RANK_VARIABLES, RANK_VARIABLES
from rankup.check.facts.program.required import reads_variable, required_variables
from rankup.check.rule import Match, Rule
from rankup.findings.finding import Confidence, Severity

_BY_TORCHRUN = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")


# Under torchrun these are its agent's: the same in all ranks of a node.
_OF_AGENT = (RANK_VARIABLES | LOCAL_RANK_VARIABLES) - {"RANK", "LOCAL_RANK"}


def find(job: Job) -> Iterator[Match]:
    if not job.complete or job.sources_files:
        return
    for launch in job.launches:
        if launch.is_torchrun:
            yield from _of_agent(job, launch)
            continue
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


def _of_agent(job: Job, launch: Launch) -> Iterator[Match]:
    """torchrun's ranks, where the program makes its group by variables that all ranks of a node share."""
    program, count = launch.program, launch.options.get("nproc_per_node")
    if count is None or job.number(count) == 1:
        return
    if (
        program is None
        or not program.whole
        or program.frameworks
        or program.spawns
        or len(program.inits) != 1
    ):
        return
    read = {
        name: place
        for name, place in required_variables(program).items()
        if name in _OF_AGENT and name not in job.names
    }
    rank = program.inits[0].argument("rank", 4)
    if not read or rank is None or reads_variable(program, "RANK"):
        return
    name, (module, node) = next(iter(read.items()))
    line = module.line(getattr(node, "lineno", 0))
    yield Match(
        job.document,
        launch.span,
        f"torchrun tells its ranks who they are by RANK and LOCAL_RANK. {module.document.path} reads {name} at {line}, "
        "which is the same for all ranks of a node.",
        why="Ranks of the same number take one another's place, and the group waits for those that nobody is.",
        fix="Read RANK, WORLD_SIZE and LOCAL_RANK, or start one task per rank by srun, without torchrun.",
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
    what="A step of srun or mpirun starts a program that reads RANK, LOCAL_RANK, MASTER_ADDR …, which nothing sets, or "
    "torchrun one that reads SLURM_PROCID.",
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
#SBATCH --nodes=2 --ntasks-per-node=1 --gpus-per-node=4
head=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)
port=$((10000 + SLURM_JOB_ID % 20000))
srun torchrun --nnodes=2 --nproc-per-node=4 --rdzv-backend=c10d --rdzv-endpoint="$head:$port" train.py
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
