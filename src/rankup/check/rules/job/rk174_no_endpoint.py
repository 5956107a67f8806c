"""The agents of torchrun get no address at which they meet."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import takewhile

from rankup.check.facts.job.commands import Value, Variable
from rankup.check.facts.job.job import Job, Launch
from rankup.check.facts.job.questions import agents, nnodes
from rankup.check.facts.job.typos import is_like
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
    "_",
)
_SHELL = frozenset({"RANDOM", "SRANDOM", "UID", "PWD", "SECONDS", "EPOCHSECONDS", "BASHPID", "PPID", "SHLVL"})


def find(job: Job) -> Iterator[Match]:
    if not job.scheduler or not job.complete or job.sources_files or "PET_" in "".join(job.names):
        return
    for launch in agents(job):
        given = [launch.options[name] for name in _WHERE if name in launch.options]
        for option in (*_WHERE, "rdzv_id"):
            value = launch.options.get(option)
            unset = _unset(job, value) if value is not None else ""
            if value is not None and unset:
                said = f"{unset} is never set: --{option} is empty."
                yield Match(job.document, value.span, said, severity=Severity.WARNING)
        if not given and _many(job, launch) and not launch.options.keys() & {"standalone", "rdzv_conf"}:
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
    known = name in job.names or name in job.tested or any(is_like(name, other) for other in job.assigned)
    return "" if known or name.startswith(_SET) or name in _SHELL or not name.isupper() else name


def _many(job: Job, launch: Launch) -> bool:
    """Whether it certainly forms a world of several nodes, and all its options are known."""
    values = [id(value) for value in launch.options.values()]
    before_program = takewhile(lambda word: word is not launch.target, launch.command.argv)
    words = list(before_program)[1 : 1 + 2 * len(values)]
    if any(word.known is None and not word.head and id(word) not in values for word in words):
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
