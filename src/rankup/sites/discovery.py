"""A profile from what a cluster says of itself: the answers of sinfo, qstat, pbsnodes, module and srun."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rankup.core.toml_file import toml_text
from rankup.core.units import clock, parse_clock, size

SINFO = ("sinfo", "--noheader", "--exact", "--format=%P|%D|%c|%m|%G|%l|%s")
QSTAT = ("qstat", "-Q", "-f")
PBSNODES = ("pbsnodes", "-a")

_HEAD = """\
# Written by `rankup sites discover` from what the cluster says of itself. What it does not say is left to you:
#   required = ["account"]   where a job has to name who pays
#   [node] arch = "aarch64"  where the compute nodes have another processor than the login nodes
"""
# What a training needs of the modules.
_FOR_TRAINING = re.compile(
    r"(py)?torch|cuda|rocm|[nr]ccl|python|miniforge|anaconda|frameworks", re.IGNORECASE
)
_MOST_MODULES = 20
# Networks that are made for this: Slingshot, InfiniBand.
_FAST = re.compile(r"hsn\d|ib\d|ibs\d|ibp\d")
_PBS_MIB = {"b": 1 / 1024**2, "kb": 1 / 1024, "mb": 1, "gb": 1024, "tb": 1024**2}


@dataclass(frozen=True)
class Queue:
    """A queue or partition, and one kind of node in it. Numbers are per node, ``memory`` in MiB; 0 or "" if unknown.

    ``time`` is the longest time of a job, and ``most`` the largest number of its nodes, 0 if all.
    """

    name: str
    nodes: int = 0
    cpus: int = 0
    memory: int = 0
    gpus: int = 0
    gpu: str = ""
    time: str = ""
    default: bool = False
    most: int = 0


@dataclass(frozen=True)
class ClusterFacts:
    """What else can be seen from a login node: who said all this and when, uname -m, and what there is.

    ``modules`` as ``module avail`` names them, ``runtimes`` of containers, ``interfaces`` of this host, ``version`` of
    SLURM and whether it ``expedites`` requeues, and ``shared`` file systems as "lustre /scratch".
    """

    source: str
    arch: str
    day: str = ""
    mpirun: bool = False
    modules: tuple[str, ...] = ()
    runtimes: tuple[str, ...] = ()
    interfaces: tuple[str, ...] = ()
    version: str = ""
    expedites: bool = False
    shared: tuple[str, ...] = ()


@dataclass(frozen=True)
class Survey:
    """What a cluster says of itself. ``node`` is the kind of node that most jobs with GPUs get."""

    scheduler: str
    queues: tuple[Queue, ...]
    node: Queue
    seen: ClusterFacts


def read_sinfo(text: str) -> list[Queue]:
    """The partitions in what ``SINFO`` printed; a line for each kind of node in each."""
    queues = []
    for line in text.splitlines():
        name, nodes, cpus, memory, gres, limit, sizes = line.strip().split("|")
        gpus = re.findall(r"\bgpu:(?:([^:,()]+):)?(\d+)", gres)
        most = re.fullmatch(r"(?:\d+-)?(\d+)", sizes)  # 1-infinite if there is no limit
        queues.append(
            Queue(
                name.rstrip("*"), int(nodes), _leading(cpus),
                _leading(memory) if memory != "1" else 0,  # 1 is what SLURM says where nobody configured it
                sum(int(number) for _, number in gpus), gpus[0][0] if gpus else "",
                "" if limit in ("infinite", "n/a") else limit, name.endswith("*"), int(most[1]) if most else 0,
            )
        )  # fmt: skip
    return queues


def read_qstat_queues(text: str) -> list[Queue]:
    """The execution queues in what ``QSTAT`` printed; PBS does not say there which nodes are behind them."""
    queues = []
    for name, said in _blocks(text, r"^Queue:\s*(\S+)"):
        if said.get("queue_type", "Execution").startswith("E") and said.get("enabled", "True") == "True":
            queues.append(Queue(name, time=said.get("resources_max.walltime", "")))
    return queues


def read_pbsnodes(text: str) -> tuple[Queue, str]:
    """The largest kind of node in what ``PBSNODES`` printed, as a queue without a name; and pbs or torque."""
    kinds = []
    scheduler = "pbs"
    for _, said in _blocks(text, r"^(\S+)$"):
        if "np" in said:  # Torque's word for cores
            scheduler = "torque"
        cpus = _leading(said.get("resources_available.ncpus", said.get("np", "0")))
        gpus = _leading(said.get("resources_available.ngpus", said.get("gpus", "0")))
        kinds.append((gpus, cpus, _mib(said.get("resources_available.mem", "0b"))))
    if not kinds:
        return Queue(""), scheduler
    gpus, cpus, memory = max(kinds)
    return Queue("", kinds.count((gpus, cpus, memory)), cpus, memory, gpus), scheduler


def read_hosts(text: str) -> list[Queue]:
    """The hosts in what ``PBSNODES`` printed, one each. A host may consist of several vnodes, which share a chunk."""
    hosts: dict[str, list[dict[str, str]]] = {}
    for name, said in _blocks(text, r"^(\S+)$"):
        if said:  # else it is another line, not a vnode
            hosts.setdefault(said.get("resources_available.host", name), []).append(said)
    sums = []
    for vnodes in hosts.values():
        cpus, gpus = (
            sum(_leading(said.get(f"resources_available.{key}", "0")) for said in vnodes)
            for key in ("ncpus", "ngpus")
        )
        memory = sum(_mib(said.get("resources_available.mem", "0b")) for said in vnodes)
        sums.append(Queue("", 1, cpus, memory, gpus))
    return sums


def read_modules(text: str) -> tuple[str, ...]:
    """The modules in what ``module -t avail`` printed: a name on each line, folders and remarks between them."""
    words = (re.sub(r"(\(.*\)|@)$", "", line.strip()) for line in text.splitlines())
    return tuple(dict.fromkeys(word for word in words if re.fullmatch(r"[\w.+-]+(/[\w.+-]+)+", word)))


def read_srun_runtimes(text: str) -> tuple[str, ...]:
    """The container runtimes that are options of srun, in what ``srun --help`` printed."""
    options = {"pyxis": "--container-image", "edf": "--environment", "uenv": "--uenv"}
    return tuple(name for name, option in options.items() if re.search(rf"{option}\b", text))


def read_mounts(text: str) -> tuple[str, ...]:
    """The shared file systems in /proc/mounts, as "lustre /scratch"."""
    shared = re.compile(r"lustre|gpfs|beegfs|weka\w*|ceph|nfs4?|panfs|daos")
    lines = (line.split() for line in text.splitlines())
    return tuple(
        sorted({f"{line[2]} {line[1]}" for line in lines if len(line) > 2 and shared.fullmatch(line[2])})
    )


def largest(queues: Sequence[Queue]) -> Queue:
    """The kind of node with the most GPUs, and among those the most frequent one."""
    return max(queues, key=lambda queue: (queue.gpus, queue.nodes), default=Queue(""))


def profile(name: str, survey: Survey) -> str:
    """The text of a profile for the cluster of ``survey``."""
    seen = survey.seen
    for_training = [module for module in seen.modules if _FOR_TRAINING.match(module)]
    lines = [
        "#   [defaults] modules = [...]  of these, or others of `module avail`:" if for_training else "",
        *(f"#     {module}" for module in for_training[:_MOST_MODULES]),
        *(f"# Seen here: {system}" for system in seen.shared),
    ]
    return _HEAD + "".join(f"{line}\n" for line in lines if line) + toml_text(tables(name, survey))


def tables(name: str, survey: Survey) -> dict[str, Mapping[str, Any]]:
    """The tables of that profile."""
    scheduler, queues, node, seen = survey.scheduler, survey.queues, survey.node, survey.seen
    srun = ["srun"] if scheduler == "slurm" else []
    mpirun = ["mpirun"] if seen.mpirun and scheduler != "local" else []
    top = {
        "title": name,
        "scheduler": scheduler,
        "launchers": ["torchrun", *srun, *mpirun],
        "notes": list(dict.fromkeys(map(_described, queues))) or None,
    }
    has = {
        "gpus": node.gpus or None,
        "gpu": node.gpu or None,
        "cpus": node.cpus or None,
        "memory": size(node.memory) if node.memory else None,
        "arch" if scheduler == "local" else "login_arch": seen.arch,
        "interface": next((one for one in sorted(seen.interfaces) if _FAST.fullmatch(one)), None),
    }
    made: dict[str, Mapping[str, Any]] = {
        "": top,
        "source": {"page": seen.source, "seen": seen.day or None},
        "node": has,
    }
    if seen.version:
        made["slurm"] = {"version": seen.version, "expedite": seen.expedites or None}
    if seen.runtimes:
        made["containers"] = {"runtime": seen.runtimes[0]}
    nodes: Counter[str] = Counter()  # a queue has a line for each kind of node
    for queue in queues:
        if queue.name and queue.nodes:
            nodes[queue.name] += queue.nodes
    most = {queue.name: queue.most for queue in queues if queue.most}
    if nodes:
        made["queue_nodes"] = {name: min(number, most.get(name, number)) for name, number in nodes.items()}
    times = {queue.name: queue.time for queue in queues if parse_clock(queue.time)}
    if times:
        made["queue_time"] = {name: clock(parse_clock(time) or 0) for name, time in times.items()}
    if node.gpus and node.name:
        without = [queue for queue in queues if not queue.gpus]
        if without:
            cpu = next((queue for queue in without if queue.default), without[0])
            made["when.cpu"] = {"queue": cpu.name}
        made["when.gpu"] = {"queue": node.name}
    return made


def _described(queue: Queue) -> str:
    facts = [
        f"{queue.nodes} nodes" if queue.nodes else "",
        f"{queue.cpus} cores" if queue.cpus else "",
        size(queue.memory) if queue.memory else "",
        f"{queue.gpus} GPUs {queue.gpu}".rstrip() if queue.gpus else "",
        f"at most {queue.time}" if queue.time else "",
        "the default" if queue.default else "",
    ]
    return f"{queue.name}: " + (", ".join(fact for fact in facts if fact) or "no limits named")


def _blocks(text: str, head: str) -> list[tuple[str, dict[str, str]]]:
    """Names and their indented ``key = value`` lines, as PBS prints them."""
    blocks: list[tuple[str, dict[str, str]]] = []
    for line in text.splitlines():
        if found := re.match(head, line):
            blocks.append((found[1], {}))
        elif blocks and " = " in line:
            key, _, value = line.strip().partition(" = ")
            blocks[-1][1][key] = value
    return blocks


def _leading(text: str) -> int:
    """``64+``, where the nodes of a partition differ, is 64."""
    digits = re.match(r"\d+", text)
    return int(digits[0]) if digits else 0


def _mib(text: str) -> int:
    found = re.fullmatch(r"(\d+)([kmgt]?b)", text, re.IGNORECASE)
    return int(int(found[1]) * _PBS_MIB[found[2].lower()]) if found else 0
