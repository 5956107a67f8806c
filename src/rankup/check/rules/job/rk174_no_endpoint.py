"""The agents of torchrun get no address at which they meet."""

from __future__ import annotations

from collections.abc import Iterator

from rankup.check.facts.job.commands import Value, Variable
from rankup.check.facts.job.job import Job, Launch
from rankup.check.facts.job.questions import agents, nnodes
from rankup.check.rule import Match, Rule
from rankup.findings.finding import Confidence, Severity

_WHERE = ("rdzv_endpoint", "master_addr")
#: Prefixes of what schedulers, launchers and shells set.
_SET = (
    "SLURM",
    "PBS",
    "LSB",
    "OMPI",
    "PMI",
    "PALS",
    "FLUX",
    "COBALT",
    "SGE",
    "MPI",
    "PET_",
    "HOST",
    "USER",
    "HOME",
)
_SHELL = frozenset({"RANDOM", "SRANDOM", "UID", "PWD", "SECONDS", "EPOCHSECONDS", "BASHPID", "PPID", "SHLVL"})


def find(job: Job) -> Iterator[Match]:
    if not job.scheduler or not job.complete or job.sources_files or "PET_" in "".join(job.names):
        return
    for launch in agents(job):
        given = [launch.options[name] for name in _WHERE if name in launch.options]
        unset = next((name for value in given if (name := _unset(job, value))), "")
        if unset:
            yield Match(
                job.document,
                given[0].span,
                f"{unset} is never set: the address of the rendezvous is empty.",
                severity=Severity.WARNING,
                confidence=Confidence.LIKELY,
            )
        elif not given and _many(job, launch) and not launch.options.keys() & {"standalone", "rdzv_conf"}:
            yield Match(
                job.document,
                launch.span,
                "The agents get no --rdzv_endpoint: each waits at its own host.",
            )


def _unset(job: Job, value: Value) -> str:
    """The variable of which the host consists, if nothing sets it."""
    host = value.atoms[0] if value.atoms else None
    if not isinstance(host, Variable) or host.operator or not host.name.isidentifier():
        return ""
    name = host.name
    known = name in job.names or name in job.assigned or name in job.tested
    return "" if known or name.startswith(_SET) or name in _SHELL or not name.isupper() else name


def _many(job: Job, launch: Launch) -> bool:
    """Whether it certainly forms a world of several nodes, and all its options are known."""
    command = launch.command
    if any(word.known is None and not word.head for word in command.argv[1:6]):
        return False
    count = nnodes(job, launch)
    return (count or 0) > 1 or (count is None and "nnodes" in launch.options and job.request.many_nodes)


RULE = Rule(
    code="RK174",
    name="no-endpoint",
    severity=Severity.ERROR,
    confidence=Confidence.LIKELY,
    what="A torchrun runs on several nodes without an address, or its address is a variable that nothing sets.",
    why="Without an address each agent listens on its own host, and waits for the others until the rendezvous times "
    "out; torchrun does not read MASTER_ADDR. An empty address is refused or means the same.",
    fix='Add --rdzv_endpoint=$HEAD:29500, with HEAD=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1).',
    find=find,
    fires=(
        """#!/bin/bash
#SBATCH --nodes=2 --ntasks-per-node=1 --gpus-per-node=4
srun torchrun --nnodes=2 --nproc_per_node=4 --rdzv_backend=c10d --rdzv_id=$SLURM_JOB_ID train.py
""",
        """#!/bin/bash
#SBATCH --nodes=1 --gpus-per-node=4
torchrun --nproc_per_node=4 --rdzv_backend=c10d --rdzv_endpoint=$MASTER_ADDR:$MASTER_PORT train.py
""",
    ),
    silent=(
        """#!/bin/bash
#SBATCH --nodes=2 --ntasks-per-node=1 --gpus-per-node=4
MASTER_ADDR=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)
srun torchrun --nnodes=2 --nproc_per_node=4 --rdzv_backend=c10d --rdzv_endpoint=$MASTER_ADDR:29500 train.py
""",
        """#!/bin/bash
#SBATCH --nodes=1 --gpus-per-node=4
torchrun --standalone --nproc_per_node=4 train.py
""",
    ),
)
