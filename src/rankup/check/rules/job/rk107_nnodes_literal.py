"""torchrun is told another number of nodes than its step has."""

from __future__ import annotations

from collections.abc import Iterator

from rankup.check.facts.job.job import Job, Launch
from rankup.check.facts.job.questions import (
    LOCAL,
    endpoint,
    fans_out,
    host_of,
    is_written,
    lacks_srun,
    nnodes,
    number_of_processes,
)
from rankup.check.rule import Edit, Match, Rule, Safety
from rankup.findings.finding import Confidence, Severity


def find(job: Job) -> Iterator[Match]:
    for launch in job.launches:
        if not launch.is_torchrun and launch.launcher != "accelerate":
            continue
        value, count, nodes = launch.options.get("nnodes"), nnodes(job, launch), _nodes(job, launch)
        tasks = _tasks(launch)
        if value is None and launch.is_torchrun:
            yield from _alone(job, launch)
        if value is None or count is None:
            continue
        if tasks is not None and tasks < count and nodes == count and launch.step is not None:
            yield Match(
                job.document,
                launch.span,
                f"{launch.step.kind} starts {tasks} task{'s' * (tasks > 1)}, and {launch.launcher} waits for {count}.",
                _one_task_each(job, launch),
                fix="Ask for one task per node: --ntasks-per-node=1, without --ntasks.",
            )
            continue
        if nodes is None or count in (nodes, tasks) or number_of_processes(job, value) is not None:
            continue
        if count == 1 and (
            launch.step is None or not launch.options.keys() & {"rdzv_endpoint", "master_addr"}
        ):
            continue  # a torchrun of its own on each node, or RK101
        place = is_written(job.document, value)
        edits = (Edit(place, "$SLURM_NNODES"),) if place is not None and job.scheduler == "slurm" else ()
        shown = launch.words["nnodes"].span if place is not None else launch.span
        option = "--nnodes" if launch.is_torchrun else "--num_machines"
        file = launch.options.get("config_file")
        by = f" by {file.text}" if file is not None and launch.words["nnodes"] is file else ""
        yield Match(
            job.document,
            shown,
            f"{option}={count}{by}, but {'it is started on' if launch.step or nodes == 1 else 'the job has'} {nodes} "
            f"node{'s' * (nodes > 1)}.",
            edits if launch.step is not None and nodes == job.request.nodes else (),
            fix=None if launch.is_torchrun else f"Use {option}=$SLURM_NNODES, which follows the directive.",
            why=None
            if count > nodes
            else "The other nodes' agents are refused, or form a second world that trains on its own.",
            confidence=Confidence.LIKELY if nodes == 1 and _meets_elsewhere(launch) else None,
        )


def _nodes(job: Job, launch: Launch) -> int | None:
    """On how many nodes it is certainly started."""
    step = launch.step
    given = launch.options.keys() & {"node_rank", "machine_rank"}
    if step is not None:
        if step.in_loop or step.background or step.kind not in ("srun", "mpiexec", "mpirun"):
            return None
        return None if step.nodes == 1 and given else step.nodes
    if lacks_srun(job, launch):
        return job.request.nodes
    if (
        job.scheduler == "slurm"
        and "array" not in job.request.by_name
        and job.request.nodes == 1
        and not fans_out(job)
        and "nodes" in job.request.by_name
        and not given  # a job for each node, or by hand
    ):
        return 1
    return None


def _meets_elsewhere(launch: Launch) -> bool:
    """Whether its address is written down: a job for each node may meet there."""
    found = endpoint(launch)
    return found is not None and host_of(found[1]) not in (None, *LOCAL)


def _alone(job: Job, launch: Launch) -> Iterator[Match]:
    """torchrun on several nodes, each with a world of its own, since --nnodes is 1 by default."""
    step = launch.step
    if step is None or step.in_loop or step.background or step.kind not in ("srun", "mpiexec", "mpirun"):
        return
    if (step.nodes or 0) < 2 or step.tasks != step.nodes:
        return
    meets = "standalone" not in launch.options and launch.options.keys() & {
        "rdzv_endpoint",
        "master_addr",
        "node_rank",
    }
    yield Match(
        job.document,
        launch.span,
        f"{launch.launcher} runs on {step.nodes} nodes without --nnodes: each node trains alone, the same model.",
        severity=None if meets else Severity.WARNING,
        confidence=None if meets else Confidence.LIKELY,
        why="The default is one node. The nodes do the same work, and write the same files.",
        fix="Add --nnodes=$SLURM_NNODES and a rendezvous.",
    )


def _one_task_each(job: Job, launch: Launch) -> tuple[Edit, ...]:
    directive = job.request.get("ntasks")
    given = launch.step is not None and "ntasks" in launch.step.options
    return () if directive is None or given else (Edit(directive.span, "--ntasks-per-node=1"),)


def _tasks(launch: Launch) -> int | None:
    return launch.step.tasks if launch.step is not None else None


RULE = Rule(
    code="RK107",
    name="nnodes-literal",
    severity=Severity.ERROR,
    confidence=Confidence.SURE,
    what="The --nnodes of torchrun is a number that is not the number of nodes on which it is started.",
    why="The agents wait for nodes that nobody starts, until the rendezvous times out.",
    fix="Use --nnodes=$SLURM_NNODES, which follows the directive.",
    find=find,
    safety=Safety.SAFE,
    fires=(
        """#!/bin/bash
#SBATCH --nodes=2 --ntasks-per-node=1
srun torchrun --nnodes=4 --nproc_per_node=4 --rdzv_backend=c10d --rdzv_endpoint=$HEAD:29500 train.py
""",
        """#!/bin/bash
#SBATCH --nodes=4 --ntasks-per-node=1
NNODES=2
srun torchrun --nnodes=$NNODES --nproc_per_node=4 --rdzv_backend=c10d --rdzv_endpoint=$HEAD:29500 train.py
""",
    ),
    silent=(
        """#!/bin/bash
#SBATCH --nodes=1 --gpus-per-node=4 --ntasks-per-node=1
srun torchrun --nnodes=2 --node_rank=$1 --master_addr=$2 --nproc_per_node=4 train.py
""",
        """#!/bin/bash
#SBATCH --nodes=1 --gpus-per-node=4 --array=0-1
torchrun --nnodes=2 --nproc_per_node=4 --rdzv_backend=c10d --rdzv_endpoint=$HEAD:29500 train.py
""",
    ),
)
