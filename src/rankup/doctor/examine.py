"""The whole examination: of this machine, of an allocation, or as one of the tasks that a launcher has started."""

from __future__ import annotations

import contextlib
import os
import platform
import shutil
import socket
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from rankup.core import shell
from rankup.doctor.contract import Document
from rankup.doctor.facts import Facts
from rankup.doctor.judges.before import compare
from rankup.doctor.launch import allocation_agents, environment, local_agents, outside, read_agents
from rankup.doctor.plan import Plan
from rankup.doctor.probes.ranks import rank_facts
from rankup.doctor.tasks import folder_of, leave_facts
from rankup.doctor.verdict import Examination, judge
from rankup.errors import RankupError
from rankup.findings.engine import fails
from rankup.findings.finding import in_order
from rankup.run.allocation import Allocation, detect_allocation
from rankup.world import World

Agents = AbstractContextManager[list[shell.Process[bytes]]]
_SUBMITS = {"slurm": "sbatch", "pbs": "qsub"}
_BEFORE_END = 3.0  # seconds that a node launcher may take before and after its agents


@dataclass(frozen=True)
class Wishes:
    """What the user has asked for. ``timeout`` and ``compute_timeout`` are the seconds without and with torch."""

    folder: Path
    timeout: float = 10.0
    compute_timeout: float = 30.0
    nproc: int = 0
    script: str = ""
    python: str = ""
    port: int = 0
    quick: bool = False
    before: Facts | None = None


def examine(wishes: Wishes, env: Mapping[str, str] = os.environ) -> Examination | None:
    """Examine what this process is a part of. None on a task that only takes part: rank 0 reports."""
    world = World.detect(env)
    if world.world_size > 1 or world.launcher != "none":
        return _as_task(wishes, world, env)
    allocation = detect_allocation(env)
    if allocation is not None and allocation.needs_fan_out:
        return _with(wishes, allocation.hosts, allocation, env)
    return _with(wishes, (socket.gethostname(),), None, env)


def _as_task(wishes: Wishes, world: World, env: Mapping[str, str]) -> Examination | None:
    folder = folder_of(env, world)
    leave_facts(folder, rank_facts(world, env))
    if world.rank != 0:
        return None
    counts = _counts(world, env)
    if world.num_nodes == 1:
        return _with(wishes, (socket.gethostname(),), None, env, tasks=str(folder), counts=counts)
    allocation = _allocation_of(world, env)
    return _with(wishes, allocation.hosts, allocation, env, tasks=str(folder), counts=counts)


def _counts(world: World, env: Mapping[str, str]) -> tuple[int, ...]:
    from rankup.core.hostlist import expand_counts

    if world.launcher == "srun":
        counts = tuple(expand_counts(env.get("SLURM_STEP_TASKS_PER_NODE", "")))
        if len(counts) == world.num_nodes:
            return counts
    return (world.local_world_size,) * world.num_nodes


def _allocation_of(world: World, env: Mapping[str, str]) -> Allocation:
    """The nodes of this launch: all of the scheduler's job, or some of them. Raises ``no-node-launcher``."""
    with contextlib.suppress(RankupError):
        job = detect_allocation(outside(env))
        # torchrun does not tell its hosts: they are those of the job, if there are as many.
        hosts = world.hosts or (job.hosts if job is not None and len(job.hosts) == world.num_nodes else ())
        if job is not None and hosts and set(hosts) <= set(job.hosts):
            whole = len(job.hosts) if hosts != job.hosts else 0
            lines = tuple(job.lines[job.hosts.index(host)] for host in hosts) if job.lines else ()
            return replace(job, hosts=hosts, lines=lines, of=whole)
    raise RankupError(
        "no-node-launcher",
        f"no job of SLURM or PBS names the {world.num_nodes} hosts of these {world.world_size} ranks",
        context=f"launcher {world.launcher}",
        hint="run `rankup doctor` on each machine by itself, or in the shell of an allocation",
        exit_code=1,
    )


def _with(
    wishes: Wishes,
    hosts: tuple[str, ...],
    allocation: Allocation | None,
    env: Mapping[str, str],
    *,
    tasks: str = "",
    counts: tuple[int, ...] = (),
) -> Examination:
    plan = Plan(
        hosts=hosts,
        folder=str(wishes.folder.absolute()),
        window=max(wishes.timeout - _BEFORE_END, 3.0),
        nproc=wishes.nproc,
        counts=counts,
        tasks=tasks,
        script=wishes.script and str(Path(wishes.script).absolute()),
        python=wishes.python,
        port=wishes.port or _given_port(env),
    )
    with _marked(plan) as folder:

        def agents(plan: Plan) -> Agents:
            inside = environment(plan, env, nested=bool(tasks))
            if allocation is None:
                return local_agents(plan, inside)
            return allocation_agents(plan, allocation, folder, inside)

        began = time.monotonic()
        documents, launch = gather(plan, agents, wishes.timeout)
        launch["scheduler"] = allocation.scheduler if allocation else ""
        facts = Facts.gathered(
            hosts, documents, counts=counts, launch=launch, here=_here(launch["scheduler"])
        )
        findings = judge(facts)
        second = (
            None if wishes.quick or fails(findings) else compute_plan(plan, facts, wishes.compute_timeout)
        )
        if second is not None:
            more, _ = gather(second, agents, wishes.compute_timeout)
            documents += more
            facts = Facts.gathered(
                hosts, documents, counts=counts, launch=launch, here=_here(launch["scheduler"])
            )
            findings = judge(facts)
        if wishes.before is not None:
            findings = in_order([*findings, *compare(wishes.before, facts)])
        return Examination(facts, findings, time.monotonic() - began)


def gather(
    plan: Plan, agents: Callable[[Plan], Agents], timeout: float
) -> tuple[list[Document], dict[str, Any]]:
    """Start the agents and read what they say, for ``timeout`` seconds at most."""
    deadline = time.monotonic() + timeout
    with agents(plan) as processes:
        return read_agents(processes, plan, deadline)


def compute_plan(plan: Plan, facts: Facts, timeout: float) -> Plan | None:
    """The second round: all ranks compute and form a process group. None if that cannot work; that is not a fault."""
    nodes = range(len(plan.hosts))
    counts = tuple(len(facts.ranks_of.get(node, ())) for node in nodes)
    if not all(counts) or not all(facts.part(node, "software").get("torch") for node in nodes):
        return None
    own = tuple(next(iter(facts.part(node, "network").get("addresses", ())), "127.0.0.1") for node in nodes)
    return replace(
        plan, compute=True, counts=counts, meet=own[0], addresses=own, window=timeout - _BEFORE_END
    )


def _given_port(env: Mapping[str, str]) -> int:
    """MASTER_PORT, where nothing of this launch listens on it yet: torchrun's store does."""
    value = env.get("MASTER_PORT", "")
    listens = "TORCHELASTIC_RUN_ID" in env
    return int(value) if value.isdigit() and 0 < int(value) < 65536 and not listens else 0


@contextmanager
def _marked(plan: Plan) -> Iterator[Path]:
    """Our folder in the directory that is probed, with a file that all nodes should see; else in a private one."""
    ours = Path(plan.folder) / plan.mark
    try:
        ours.mkdir(mode=0o700)
        (ours / "head").write_text(plan.tag)
    except OSError:  # read-only or full: the agents will say so
        shutil.rmtree(ours, ignore_errors=True)
        with tempfile.TemporaryDirectory(prefix="rankup-doctor-") as private:
            yield Path(private)
        return
    try:
        yield ours
    finally:
        shutil.rmtree(ours, ignore_errors=True)


def _here(scheduler: str) -> dict[str, Any]:
    """``scheduler``: that of the allocation, if there is one; a machine may have the commands of another one too."""
    installed = next((name for name in _SUBMITS.values() if shutil.which(name)), "")
    return {
        "host": socket.gethostname(),
        "architecture": platform.machine(),
        "scheduler": _SUBMITS.get(scheduler, installed),
    }
