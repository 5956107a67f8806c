"""A job's directives and the sizes of a cluster → the ``Allocation`` that its scheduler would give."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from dataclasses import dataclass

from rankup.check.facts.job.request import Request
from rankup.check.facts.job.typos import is_slip
from rankup.core.hostlist import expand
from rankup.errors import RankupError
from rankup.launch_grammar.numbers import refusal
from rankup.launch_grammar.options import grammar_of
from rankup.rehearse.allocation import Allocation, spread

_NODES_AT_MOST = 512
#: Directives that sbatch hands to srun as they are, in a variable each.
_HANDED_ON = {
    "gpu-bind": "SLURM_GPU_BIND",
    "distribution": "SLURM_DISTRIBUTION",
    "overcommit": "SLURM_OVERCOMMIT",
}


@dataclass(frozen=True)
class Sizes:
    """What a user says about the cluster, or a site's profile. What is None comes from the directives."""

    nodes: int | None = None
    gpus_per_node: int | None = None
    cpus_per_node: int | None = None
    hosts: str = ""  # names, as SLURM writes them
    scheduler: str = ""


def allocation_of(request: Request, sizes: Sizes, name: str) -> tuple[Allocation, int, list[str]]:
    """The allocation, its time limit in seconds, and what was assumed.

    Raises ``RankupError``: ``bad-size`` if nodes or GPUs make no sense, ``sbatch-refuses``, ``heterogeneous-job``,
    ``unknown-scheduler``.
    """
    scheduler = sizes.scheduler or request.scheduler or "slurm"
    if scheduler not in ("slurm", "pbs", "torque"):
        raise RankupError("unknown-scheduler", f"a rehearsal is for SLURM and PBS, not {scheduler}")
    made = _pbs(request, sizes) if scheduler in ("pbs", "torque") else _slurm(request, sizes)
    job, assumed = made
    values = {**job.as_dict(), "scheduler": scheduler, "job_name": _word(request, "job-name", "N") or name}
    values["partition"] = _word(request, "partition", "q") or "main"
    directive = request.get("array") if scheduler == "slurm" else request.get("array", "J", "t")
    array = directive.value if directive is not None else ""
    if array[:1].isdigit():  # its % is not a placeholder: so many tasks run at once
        values["array_task"] = re.split(r"[-,:%]", array)[0]
        values["array"] = _array(array)
        assumed.append(f"one task of the array is rehearsed: {values['array_task']}")
    return Allocation.from_dict(values), _seconds(request, scheduler), assumed


def _array(text: str) -> tuple[int, int, int, int]:
    """Of ``0-9%2`` or ``1,3,5-9:2``: how many tasks, the first, the last, the step."""
    tasks, step = [], 1
    for match in re.finditer(r"(\d+)(?:-(\d+)(?::([1-9]\d*))?)?", text.partition("%")[0]):
        step = int(match[3] or 1)
        tasks.append(range(int(match[1]), int(match[2] or match[1]) + 1, step))
    tasks = [each for each in tasks if each] or [range(1)]
    lowest, highest = min(each[0] for each in tasks), max(each[-1] for each in tasks)
    return sum(map(len, tasks)), lowest, highest, step if len(tasks) == 1 else 1


def _word(request: Request, *names: str) -> str:
    directive = request.get(*names)
    return directive.value if directive is not None and directive.known else ""


def _hosts(sizes: Sizes, nodes: int) -> tuple[str, ...]:
    if not 1 <= nodes <= _NODES_AT_MOST:
        raise RankupError("bad-size", f"--nodes must be from 1 to {_NODES_AT_MOST}, got {nodes}")
    if sizes.hosts:
        hosts = tuple(expand(sizes.hosts))
        if len(hosts) < nodes:
            raise RankupError("bad-size", f"--hosts names {len(hosts)} hosts, but the job has {nodes} nodes")
        return hosts[:nodes]
    return tuple(f"node{number + 1}" for number in range(nodes))


def _slurm(request: Request, sizes: Sizes) -> tuple[Allocation, list[str]]:
    assumed = list(_refuse(request))

    def count(option: str) -> int | None:
        directive = request.by_name.get(option)
        return directive.number if directive is not None else None

    def gpus(option: str) -> int | None:
        directive = request.by_name.get(option)
        text = directive.value.rpartition(":")[2] if directive is not None else ""
        return int(text) if text.isdigit() else None

    if request.heterogeneous:
        raise RankupError(
            "heterogeneous-job",
            "a rehearsal has one kind of nodes, and this job asks for several (#SBATCH hetjob)",
            hint="rehearse each component as a script of its own: its directives, and its srun without --het-group",
        )
    ntasks, per_node, cpus = count("ntasks"), count("ntasks-per-node"), count("cpus-per-task")
    total, per_gpu, per_task = gpus("gpus"), count("ntasks-per-gpu"), gpus("gpus-per-task")
    if per_gpu and total and ntasks is None:
        ntasks = per_gpu * total
    nodes = sizes.nodes or request.nodes
    if nodes is None:
        directive = request.by_name.get("nodes")
        match = re.match(r"\d+", directive.value) if directive is not None else None
        if match:
            nodes = int(match[0])
            assumed.append(f"--nodes={directive.value if directive else ''}: {nodes} are rehearsed")
        elif ntasks and (sizes.cpus_per_node or per_node):
            fit = per_node or max(1, (sizes.cpus_per_node or 1) // (cpus or 1))
            nodes = math.ceil(ntasks / fit)
        elif total and sizes.gpus_per_node:
            nodes = math.ceil(total / sizes.gpus_per_node)
        else:
            nodes = 1
            if (ntasks or total or 0) > 1 or not request.directives:
                assumed.append(
                    "the directives do not say how many nodes: one is rehearsed (--nodes says otherwise)"
                )
    hosts = _hosts(sizes, nodes)
    # What --ntasks-per-node gives at most, or the round of the nodes.
    tasks = spread(ntasks, nodes, per_node, (1 << 20,) * nodes) if ntasks else (per_node or 1,) * nodes
    room = [each * (cpus or 1) for each in tasks]
    devices = request.gpus_per_node
    if devices is None and per_task:
        counts = [each * per_task for each in tasks]
    elif devices is None and total:
        counts = list(spread(total, nodes, None, (1 << 20,) * nodes))
    else:
        counts = [devices or 0] * nodes
    asks = request.asks_for_gpus
    if sizes.gpus_per_node is not None and (not any(counts) or asks is not False):
        if not any(counts) and sizes.gpus_per_node and asks is False:
            assumed.append(_no_gpu(sizes.gpus_per_node))
        counts = [sizes.gpus_per_node] * nodes if devices is None and not total and not per_task else counts
    cpus_per_gpu = count("cpus-per-gpu")
    if cpus_per_gpu:
        room = [max(each, cpus_per_gpu * gpu) for each, gpu in zip(room, counts, strict=True)]
    if request.exclusive:
        whole = sizes.cpus_per_node or max(64, *room)
        room = [whole] * nodes
        if not sizes.cpus_per_node:
            assumed.append(f"--exclusive gives whole nodes: {whole} CPUs each are assumed (--cpus-per-node)")
    written = request.by_name.get("gpus-per-node")
    export = request.by_name.get("export")
    return Allocation(
        hosts=hosts, cpus=tuple(room), gpus=tuple(counts), ntasks=ntasks, ntasks_per_node=per_node, cpus_per_task=cpus,
        gpus_per_task=per_task, gpus_per_node=written.value if written is not None else None,
        total_gpus=str(total) if total is not None else None, ntasks_per_gpu=per_gpu, exclusive=request.exclusive,
        no_kill="no-kill" in request.by_name,
        handed_on={
            variable: request.by_name[name].value or "1"
            for name, variable in _HANDED_ON.items()
            if name in request.by_name and request.by_name[name].known
        },
        export_none=export is not None and export.value.upper() in ("NONE", "NIL"), mpiprocs=(1,) * nodes,
    ), assumed  # fmt: skip


def _no_gpu(assumed: int) -> str:
    return f"the directives ask for no GPU; {assumed} on each node are rehearsed"


def _refuse(request: Request) -> Iterator[str]:
    """Raises what sbatch says of a directive that it does not take; yields the options of a site's plug-ins."""
    sbatch = grammar_of("sbatch")
    for directive in request.directives:
        name, said, hint = directive.name, "", ""
        option = sbatch.find(f"--{name}")
        near = [one for one in sbatch.names if is_slip(name, one)]
        if option is not None:
            said = refusal(option, directive.value) if directive.known else ""
        elif directive.is_word or not directive.known or not re.fullmatch(r"[a-z][a-z-]+", name):
            continue
        elif several := sbatch.beginnings(name):
            names = " ".join(f"'--{one}'" for one in several)
            said = f"option '--{name}' is ambiguous; possibilities: {names}"
        elif near or grammar_of("srun").beginnings(name):
            said = f"unrecognized option '--{name}'"
            hint = f"did you mean --{near[0]}?" if near else "it is an option of srun"
        else:
            yield f"sbatch itself has no option --{name}: a plug-in of the site must add it"
        if said:
            raise RankupError("sbatch-refuses", f"sbatch refuses this job: {said}", hint=hint)


def _pbs(request: Request, sizes: Sizes) -> tuple[Allocation, list[str]]:
    assumed: list[str] = []
    torque = request.scheduler == "torque" or sizes.scheduler == "torque"
    cpus: list[int] = []
    gpus: list[int] = []
    lines: list[int] = []
    threads = None
    for chunk in request.chunks:
        each = chunk.number("ppn" if torque else "ncpus") or 1
        devices = chunk.number("gpus" if torque else "ngpus") or 0
        processes = chunk.number("mpiprocs")
        threads = chunk.number("ompthreads") or threads
        for _ in range(chunk.count or 1):
            cpus.append(each)
            gpus.append(devices)
            lines.append(each if torque else 1 if processes is None else processes)
    if not cpus:  # without select, -l ncpus and -l ngpus are of the whole job: those of one chunk
        each, rest = divmod(_resource(request, "ncpus") or 1, sizes.nodes or 1)
        cpus, gpus = [each + bool(rest)], [(_resource(request, "ngpus") or 0) // (sizes.nodes or 1)]
        lines = [1]
    if request.packed and len(cpus) > 1 and not torque:
        assumed.append(
            "each chunk is rehearsed on a node of its own; without place=scatter PBS may put several on one"
        )
    if sizes.nodes is not None:
        cpus, gpus, lines = ([values[0]] * sizes.nodes for values in (cpus, gpus, lines))
    if sizes.gpus_per_node and not any(gpus):
        assumed.append(_no_gpu(sizes.gpus_per_node))
        gpus = [sizes.gpus_per_node] * len(cpus)
    if sizes.cpus_per_node is not None and request.exclusive:
        cpus = [sizes.cpus_per_node] * len(cpus)
    return Allocation(
        hosts=_hosts(sizes, len(cpus)), cpus=tuple(cpus), gpus=tuple(gpus), mpiprocs=tuple(lines), ompthreads=threads,
        exclusive=request.exclusive,
    ), assumed  # fmt: skip


def _resource(request: Request, name: str) -> int | None:
    text = request.resources.get(name, ("",))[0]
    return int(text) if text.isdigit() else None


def _seconds(request: Request, scheduler: str) -> int:
    """The job's time limit; an hour if it says none."""
    text = _word(request, "time") if scheduler == "slurm" else request.resources.get("walltime", ("",))[0]
    days, dash, clock = text.rpartition("-")
    parts = clock.split(":")
    if not all(part.isdigit() for part in parts) or (dash and not days.isdigit()):
        return 3600
    numbers = [int(part) for part in parts]
    if dash:
        hours, minutes, seconds = [*numbers, 0, 0][:3]
        return int(days) * 86400 + hours * 3600 + minutes * 60 + seconds
    if scheduler == "slurm" and len(numbers) < 3:
        numbers = [0, *numbers, 0][:3] if len(numbers) == 1 else [0, *numbers]
    total = 0
    for number in numbers:
        total = total * 60 + number
    return total or 3600
