"""A rendezvous id that each agent draws for itself."""

from __future__ import annotations

from collections.abc import Iterator

from rankup.check.document import Span
from rankup.check.facts.job import Job, Launch
from rankup.check.facts.job_commands import Output, Value, Variable
from rankup.check.facts.job_questions import is_many
from rankup.check.rule import Edit, Match, Rule, Safety
from rankup.findings.finding import Confidence, Severity


def find(job: Job) -> Iterator[Match]:
    for launch in job.launches:
        value = launch.options.get("rdzv_id")
        if value is None or not launch.is_torchrun or launch.step is None:
            continue
        for atom in value.atoms:
            if not _is_random(atom) or not _on_each(job, launch, atom):
                continue
            shown = job.document[atom.span]
            written = shown.startswith(("$", "`")) and job.scheduler == "slurm"
            yield Match(
                job.document,
                atom.span,
                f"Each agent expands {shown} for itself, so that no two have the same rendezvous id.",
                (Edit(Span(atom.span.start, atom.span.end), "$SLURM_JOB_ID"),) if written else (),
            )


def _is_random(atom: object) -> bool:
    if isinstance(atom, Variable):
        return atom.name in ("RANDOM", "SRANDOM")
    if isinstance(atom, Output):
        names = {command.name for command in atom.commands}
        return "uuidgen" in names or any(variable.name == "RANDOM" for variable in Value((atom,)).variables())
    return False


def _on_each(job: Job, launch: Launch, atom: object) -> bool:
    """Whether the agents do not get the same value: a step expands it, or a loop over the nodes does."""
    shell = getattr(atom, "shell", None)
    if shell is None or launch.step is None:
        return False
    if shell.step is not None:
        return is_many(launch.step) or launch.step.in_loop
    # In the batch shell: once, unless the command itself stands in a loop over the nodes.
    inside = launch.step.span.start <= atom.span.start < launch.step.span.end  # type: ignore[attr-defined]
    return launch.step.in_loop and launch.step.kind in ("ssh", "pbs_tmrsh", "pbsdsh") and inside


RULE = Rule(
    code="RK144",
    name="random-rdzv-id",
    severity=Severity.ERROR,
    confidence=Confidence.SURE,
    what="The --rdzv_id is random, and each agent draws its own.",
    why="Agents with different ids never meet: each waits until the rendezvous times out.",
    fix="Use the job's id: --rdzv_id=$SLURM_JOB_ID.",
    find=find,
    safety=Safety.SAFE,
    fires=(
        """#!/bin/bash
#SBATCH --nodes=2 --ntasks-per-node=1
srun bash -c 'torchrun --nnodes=2 --rdzv_id=$RANDOM --rdzv_backend=c10d --rdzv_endpoint=$HEAD:29500 train.py'
""",
        """#!/bin/bash
#SBATCH --nodes=2
for node in $(scontrol show hostnames "$SLURM_JOB_NODELIST"); do
  ssh "$node" "cd $PWD; torchrun --nnodes=2 --rdzv_id=$RANDOM --rdzv_backend=c10d --rdzv_endpoint=$HEAD:1 train.py" &
done
wait
""",
    ),
    silent=(
        """#!/bin/bash
#SBATCH --nodes=2 --ntasks-per-node=1
srun torchrun --nnodes=2 --rdzv_id=$RANDOM --rdzv_backend=c10d --rdzv_endpoint=$HEAD:29500 train.py
""",
        """#!/bin/bash
#SBATCH --nodes=2
id=$RANDOM
for node in $(scontrol show hostnames "$SLURM_JOB_NODELIST"); do
  ssh "$node" "cd $PWD; torchrun --nnodes=2 --rdzv_id=$id --rdzv_backend=c10d --rdzv_endpoint=$HEAD:1 train.py" &
done
wait
""",
    ),
)
