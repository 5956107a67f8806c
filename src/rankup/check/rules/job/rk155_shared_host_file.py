"""A file with this job's hosts, under a name that all jobs of the folder use."""

from __future__ import annotations

from collections.abc import Iterator

from rankup.check.facts.job import Job
from rankup.check.facts.job_commands import Command, Variable
from rankup.check.rule import Match, Rule
from rankup.findings.finding import Confidence, Severity

_HOSTS = ("HOSTNAME", "SLURM_JOB_NODELIST", "SLURM_NODELIST", "MASTER_ADDR", "PBS_NODEFILE")


def find(job: Job) -> Iterator[Match]:
    if not job.scheduler or not job.request.many_nodes:
        return
    for command in job.commands:
        if command.in_output or not _prints_hosts(command):
            continue
        for redirect in command.redirects:
            name = redirect.target.known
            if redirect.operator == ">" and name and not name.startswith(("/dev/", "/tmp/", "/dev/shm/")):
                yield Match(
                    job.document,
                    redirect.span,
                    f"Another job of this folder writes its hosts to the same file {name!r}.",
                )


def _prints_hosts(command: Command) -> bool:
    if command.name == "scontrol" and command.args[:2] == ("show", "hostnames"):
        return True
    if command.name == "hostname":
        return True
    if command.name in ("echo", "cat", "sort", "uniq"):
        return (
            any(
                isinstance(atom, Variable) and atom.name in _HOSTS
                for word in command.argv[1:]
                for atom in word.atoms
            )
            and len(command.argv) <= 3
        )
    return False


RULE = Rule(
    code="RK155",
    name="shared-host-file",
    severity=Severity.NOTE,
    confidence=Confidence.LIKELY,
    what="The host names of a job are written to a file whose name is the same in every job.",
    why="Two jobs at once overwrite each other's file, and a later one may read a host name that is left over.",
    fix="Put the job's id into the name: hosts.$SLURM_JOB_ID.",
    find=find,
    fires=(
        """#!/bin/bash
#SBATCH --nodes=2
scontrol show hostnames "$SLURM_JOB_NODELIST" > hostfile
deepspeed --hostfile hostfile train.py
""",
        """#!/bin/bash
#PBS -l select=2:ncpus=8:ngpus=1
cd "$PBS_O_WORKDIR"
cat $PBS_NODEFILE > hosts.txt
mpiexec -n 2 --hostfile hosts.txt python train.py
""",
    ),
    silent=(
        """#!/bin/bash
#SBATCH --nodes=2
scontrol show hostnames "$SLURM_JOB_NODELIST" > hostfile.$SLURM_JOB_ID
deepspeed --hostfile hostfile.$SLURM_JOB_ID train.py
""",
        """#!/bin/bash
#SBATCH --nodes=1
hostname > where.txt
python train.py
""",
    ),
)
