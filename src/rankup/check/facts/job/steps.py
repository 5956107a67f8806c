"""Node launchers: how many tasks a command line starts on how many nodes, and of what."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from rankup.check.facts.job.commands import Value, Variable
from rankup.check.facts.job.options import parse
from rankup.check.facts.job.request import Request
from rankup.check.facts.job.source import joined
from rankup.launch_grammar.dialects import MPI
from rankup.launch_grammar.reader import CommandLine

#: Centres' own wrappers and other schedulers' launchers: they reach nodes, and nobody knows how many.
OTHER = frozenset({"ibrun", "ccc_mprun", "flux", "poe", "yod", "mprun", "rsrun", "prrte", "parallel"})
KINDS = (
    MPI.keys()
    | OTHER
    | {"srun", "pbsdsh", "pbs_tmrsh", "ssh", "pdsh", "clush", "blaunch", "jsrun", "lrun", "aprun"}
)


@dataclass(frozen=True)
class Fanout:
    """What a node launcher's command line says."""

    kind: str
    parsed: CommandLine[Value]
    argv: tuple[Value, ...]
    text: Value | None = None  # what a remote shell reads
    nodes: int | None = None
    tasks: int | None = None
    tasks_per_node: int | None = None


def fan_out(name: str, argv: Sequence[Value], request: Request) -> Fanout | None:
    """What a node launcher starts; None if the command is not one, or starts nothing."""
    if name not in KINDS:
        return None
    words = argv[2:] if name == "flux" else argv[1:]
    if name in ("pbsdsh", "pbs_tmrsh"):
        return _pbs(name, words, request)
    parsed = parse(name, words)
    rest = parsed.rest
    if name == "srun":
        return Fanout("srun", parsed, rest, None, *_srun_size(parsed, request))
    if name in MPI:
        kind = "mpirun" if name in ("mpirun", "orterun", "mpirun.openmpi") else "mpiexec"
        return Fanout(kind, parsed, rest, None, *_mpi_size(parsed, request))
    if name == "ssh":
        rest = parse(name, rest[1:]).rest  # options may follow the host
        return Fanout("ssh", parsed, rest, joined(rest) if rest else None, 1, 1, 1)
    if name in ("pdsh", "clush"):
        return Fanout("pdsh", parsed, rest, joined(rest), request.nodes, request.nodes, 1)
    if name == "aprun":
        tasks, per_node = _number(parsed, request, "np"), _number(parsed, request, "ppn")
        nodes = tasks // per_node if tasks and per_node else None
        return Fanout("aprun", parsed, rest, None, nodes, tasks, per_node)
    if name == "jsrun":
        return Fanout("jsrun", parsed, rest, None, *_jsrun_size(parsed, request))
    if name == "blaunch" and not parsed.options.keys() & {"u", "z"}:
        rest = rest[1:]  # the host
    return Fanout(name, parsed, rest)


def _pbs(name: str, words: Sequence[Value], request: Request) -> Fanout:
    parsed = parse(name, words)
    if name == "pbs_tmrsh":
        return Fanout(name, parsed, parsed.rest[1:], None, 1, 1, 1)
    if parsed.options.keys() & {"index", "host", "o"}:
        return Fanout(name, parsed, parsed.rest, None, 1, 1, 1)
    if "u" in parsed.options:  # Torque: once on each node
        return Fanout(name, parsed, parsed.rest, None, request.nodes, request.nodes, 1)
    per_node = request.lines_per_node
    tasks = request.nodes * per_node if request.nodes and per_node else None
    return Fanout(name, parsed, parsed.rest, None, request.nodes, tasks, per_node)


def _number(parsed: CommandLine[Value], request: Request, name: str) -> int | None:
    value = parsed.options.get(name)
    return value.number(request.number) if value is not None else None


def _srun_size(parsed: CommandLine[Value], request: Request) -> tuple[int | None, int | None, int | None]:
    """Nodes, tasks and tasks per node of a step: srun's own options win over the job's."""
    options = parsed.options
    ntasks, nodes = _number(parsed, request, "ntasks"), _number(parsed, request, "nodes")
    per_node = _number(parsed, request, "ntasks-per-node")
    given = {name for name in ("ntasks", "nodes", "ntasks-per-node") if name in options}
    if request.heterogeneous or "het-group" in options or "pack-group" in options or "multi-prog" in options:
        return None, None, None
    if "nodelist" in options and "nodes" not in given:
        value = options["nodelist"].known
        nodes = 1 if value is None or "," not in value else None
        if "ntasks" not in given:
            return nodes, None, per_node
    if not given:
        return request.nodes, request.tasks, request.tasks_per_node
    if "ntasks" in given:
        if ntasks is None:
            return nodes, None, per_node
        if "nodes" not in given:
            nodes = nodes or (min(request.nodes, ntasks) if request.nodes else None)
        if per_node is None and nodes and ntasks % nodes == 0:
            per_node = ntasks // nodes
        return nodes, ntasks, per_node
    if "nodes" not in given:
        nodes = request.nodes
    if "ntasks-per-node" in given:
        return nodes, nodes * per_node if nodes and per_node else None, per_node
    # Only --nodes: the job's tasks, if they fit to it.
    if nodes is not None and nodes == request.nodes:
        return nodes, request.tasks, request.tasks_per_node
    if request.tasks_given:
        return nodes, None, None
    return nodes, nodes, 1


def _jsrun_size(parsed: CommandLine[Value], request: Request) -> tuple[int | None, int | None, int | None]:
    """Of resource sets, each with its tasks."""
    sets, per_host = _number(parsed, request, "nrs"), _number(parsed, request, "rs_per_host")
    each = _number(parsed, request, "tasks_per_rs") if "tasks_per_rs" in parsed.options else 1
    tasks = _number(parsed, request, "np") or (sets * each if sets and each else None)
    nodes = -(-sets // per_host) if sets and per_host else None
    return nodes, tasks, per_host * each if per_host and each else None


def _mpi_size(parsed: CommandLine[Value], request: Request) -> tuple[int | None, int | None, int | None]:
    tasks, per_node = _number(parsed, request, "np"), _number(parsed, request, "ppn")
    mapping = parsed.options.get("map-by")
    match = re.match(r"ppr:(\d+):node", mapping.head) if mapping is not None else None
    if match:
        per_node = int(match.group(1))
    if tasks is not None:
        if per_node:
            return -(-tasks // per_node), tasks, per_node
        if tasks == 1:
            return 1, 1, 1
        return None, tasks, None
    if "np" in parsed.options:
        return None, None, per_node
    if "hostfile" in parsed.options and per_node is None and request.scheduler in ("pbs", "torque"):
        file = parsed.options["hostfile"].atoms
        if len(file) == 1 and isinstance(file[0], Variable) and file[0].name == "PBS_NODEFILE":
            return request.nodes, request.tasks, request.lines_per_node  # a rank for each line
    nodes = request.nodes if per_node else None
    return nodes, nodes * per_node if nodes and per_node else None, per_node
