"""Where the tasks of an ``srun`` run, as SLURM places them: nodes, ranks, CPUs, GPUs. Pure functions."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from rankup.core.hostlist import expand
from rankup.errors import RankupError
from rankup.rehearse.allocation import Allocation, spread
from rankup.rehearse.slurm_env import Step, TaskPlace
from rankup.rehearse.srun_options import SrunOptions


@dataclass
class StepPlan:
    """What srun does: a step, or an error. ``warnings`` are srun's own; ``notes`` are what a rehearsal cannot know."""

    step: Step | None = None
    error: str = ""
    warnings: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    sets_ntasks_per_node: int | None = None
    cpus_per_task: int | None = None
    waits: bool = False  # for steps that hold the nodes


def plan_step(
    job: Allocation,
    given: SrunOptions,
    inherited: Mapping[str, str],
    *,
    number: int = 0,
    busy: Sequence[str] = (),
    launched_from: str = "",
) -> StepPlan:
    """The step of ``srun``. ``inherited`` are the options from variables; ``busy`` the hosts that other steps hold."""
    plan = StepPlan()
    options = SrunOptions({**inherited, **given.options})
    per_node = options.number("ntasks-per-node")
    cpus = options.number("cpus-per-task")
    ntasks = options.number("ntasks")
    nodes, listed = options.number("nodes"), _hosts(given.options.get("nodelist", ""), plan)
    excluded = _hosts(given.options.get("exclude", ""), plan)
    if plan.error:
        return plan
    for host in listed:
        if host not in job.hosts:
            plan.error = f"Requested node configuration is not available: {host} is not a node of this job"
            return plan
    if nodes is None:
        nodes = len(listed) or 1
    per_gpu = options.number("ntasks-per-gpu")
    if ntasks is None:
        ntasks = nodes * (per_node or 1)
        if per_gpu:
            ntasks = per_gpu * (options.number("gpus") or sum(job.gpus[:nodes]) or 1)
    if ntasks < nodes:
        plan.warnings.append(f"can't run {ntasks} processes on {nodes} nodes, setting nnodes to {ntasks}")
        nodes = ntasks
    if nodes > job.num_nodes:
        plan.error = f"Only allocated {job.num_nodes} nodes asked for {nodes}"
        return plan
    if per_node and ntasks > per_node and ntasks != nodes * per_node:
        plan.warnings.append(
            f"can't honor --ntasks-per-node set to {per_node} which doesn't match the requested tasks {ntasks} with "
            f"the number of requested nodes {nodes}. Ignoring --ntasks-per-node."
        )
        per_node = None
    elif given.number("ntasks-per-node") is not None:
        plan.sets_ntasks_per_node = per_node
    hosts = _pick(job, nodes, listed, excluded, given.number("relative") or 0, busy, plan)
    if not hosts:
        return plan
    plan.waits = not options.has("overlap") and any(host in busy for host in hosts)
    indices = [job.hosts.index(host) for host in hosts]
    room = [job.cpus[index] // (cpus or 1) for index in indices]
    if sum(room) < ntasks and not options.has("overcommit"):
        plan.error = f"Unable to create step for job {job.job_id}: More processors requested than permitted"
        return plan
    counts = spread(ntasks, len(hosts), per_node, tuple(room))
    distribution = _distribution(options.options.get("distribution", ""), ntasks, len(hosts), plan)
    plan.cpus_per_task = cpus
    exact = cpus is not None or options.has("exact")
    step_cpus = tuple(
        count * (cpus or 1) if exact else job.cpus[index]
        for count, index in zip(counts, indices, strict=True)
    )
    gpus = _gpus(options, [job.gpus[index] for index in indices], counts, plan)
    bind = _bind(options, counts, gpus)
    tasks = []
    for rank, node, local in _ranks(counts, distribution):
        tasks.append(
            TaskPlace(rank, local, node, hosts[node], _gpus_of(bind, local, counts[node], gpus[node], plan))
        )
    bound = bind if max(counts, default=1) > 1 or not bind.startswith("per_task") else ""
    bound = bound if any(gpus) else ""
    plan.step = Step(number, tuple(hosts), tuple(tasks), step_cpus, gpus, distribution, bound, launched_from)
    return plan


def _hosts(text: str, plan: StepPlan) -> list[str]:
    if text.startswith("/"):
        plan.notes.append(f"the file of nodes {text} was not read")
        return []
    try:
        return list(dict.fromkeys(expand(text)))
    except RankupError as error:
        plan.error = f"Invalid node list ({text}) specified: {error.message}"
        return []


def _pick(
    job: Allocation, nodes: int, listed: Sequence[str], excluded: Sequence[str], relative: int,
    busy: Sequence[str], plan: StepPlan,
) -> list[str]:  # fmt: skip
    """The step's nodes, in the job's order: those that are listed, then idle ones, then busy ones."""
    if relative:
        hosts = list(job.hosts[relative : relative + nodes])
        if len(hosts) < nodes:
            plan.error = f"--relative={relative} and {nodes} nodes are more than the job's {job.num_nodes}"
            return []
        return hosts
    others = [host for host in job.hosts if host not in listed and host not in excluded]
    wanted = [*listed, *sorted(others, key=lambda host: host in busy)]
    if len(wanted) < nodes:
        plan.error = "Requested node configuration is not available"
        return []
    chosen = wanted[: max(nodes, len(listed))]
    return [host for host in job.hosts if host in chosen]


def _distribution(text: str, ntasks: int, nodes: int, plan: StepPlan) -> str:
    word = re.split("[:,]", text)[0]
    if word.startswith("plane") or word == "arbitrary":
        plan.notes.append(f"--distribution={text} is rehearsed as block")
        return "block"
    if word in ("cyclic", "block"):
        return word
    return "cyclic" if ntasks <= nodes else "block"


def _ranks(counts: Sequence[int], distribution: str) -> list[tuple[int, int, int]]:
    """(rank, node, local rank) of each task, by rank."""
    if distribution == "block":
        places = [(node, local) for node, count in enumerate(counts) for local in range(count)]
    else:
        rounds = range(max(counts, default=0))
        places = [(node, local) for local in rounds for node, count in enumerate(counts) if local < count]
    return [(rank, node, local) for rank, (node, local) in enumerate(places)]


def _gpus(
    options: SrunOptions, available: Sequence[int], counts: Sequence[int], plan: StepPlan
) -> tuple[int, ...]:
    """The GPUs of the step on each of its nodes; all of the job's unless the step asks for fewer."""
    gres = options.options.get("gres", "")
    per_task, total = options.number("gpus-per-task"), options.number("gpus")
    if gres == "none" or options.options.get("gpus") == "0":
        return (0,) * len(available)
    if per_task is not None:
        asked = [per_task * count for count in counts]
    elif (per_node := options.number("gpus-per-node")) is not None:
        asked = [per_node] * len(available)
    elif "gpu" in gres:
        match = re.search(r"gpu(?::[^:,\d][^:,]*)?(?:[:=](\d+))?", gres)
        asked = [int(match[1] or 1) if match else 1] * len(available)
    elif total is not None:
        asked, left = [], total
        for room in available:
            asked.append(min(room, left))
            left -= asked[-1]
    else:
        return tuple(available)
    if any(want > room for want, room in zip(asked, available, strict=True)):
        plan.notes.append("the step asks for more GPUs than the job has on a node; SLURM refuses it")
        plan.error = "Unable to create step for job: Invalid generic resource (gres) specification"
    return tuple(min(want, room) for want, room in zip(asked, available, strict=True))


def _bind(options: SrunOptions, counts: Sequence[int], gpus: Sequence[int]) -> str:
    """How tasks are bound to GPUs: ``per_task:1``, ``single:1``, ``none``, ``map_gpu:0,1``; "": not at all."""
    given = options.options.get("gpu-bind", "").removeprefix("verbose,").removeprefix("v,")
    if given:
        return given
    per_task, per_gpu = options.number("gpus-per-task"), options.number("ntasks-per-gpu")
    if per_task:
        return f"per_task:{per_task}"
    return f"single:{per_gpu}" if per_gpu else ""


def _gpus_of(bind: str, local: int, count: int, gpus: int, plan: StepPlan) -> tuple[int, ...] | None:
    kind, _, value = bind.partition(":")
    every = tuple(range(gpus))
    if not gpus or not kind:
        return every
    if kind == "none":
        return None
    if kind == "per_task":
        size = int(value or 1)
        return tuple(every[local * size : (local + 1) * size]) or every[-1:]
    if kind == "single":
        return (every[local // int(value or 1) % gpus],)
    if kind == "map_gpu":
        numbers = [int(one.partition("*")[0], 0) for one in value.split(",") if one]
        return (numbers[local % len(numbers)],) if numbers else every
    if kind == "mask_gpu":
        masks = [int(one.partition("*")[0], 16) for one in value.split(",") if one]
        mask = masks[local % len(masks)] if masks else 0
        return tuple(number for number in every if mask >> number & 1) or every
    note = f"--gpu-bind={bind}: which GPUs are near a task depends on the nodes; all are shown"
    if note not in plan.notes:
        plan.notes.append(note)
    return every
