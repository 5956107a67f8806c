"""Launches → what is wrong with them: agents that are missing, ranks that are doubled, what would wait for ever."""

from __future__ import annotations

import ipaddress
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from rankup.findings.finding import Confidence, Finding, Severity
from rankup.rehearse.allocation import Allocation
from rankup.rehearse.processes import BY_ITSELF, Launch, Process

_WAITS = "The agents wait for each other until a time limit, and then end with an error."
_HANGS = "init_process_group waits for the others until its time limit (10 to 30 minutes), and then ends with an error."
_HEAD = (
    "use the first node's name: scontrol show hostnames $SLURM_JOB_NODELIST | head -n 1, or the first line of "
    "$PBS_NODEFILE"
)


@dataclass(frozen=True)
class _Starter:
    """The command that starts the tasks of a job, its variables, and its words for one task on each node."""

    command: str
    rank: str
    local: str
    node: str
    once: str


_SRUN = _Starter("srun", "SLURM_PROCID", "SLURM_LOCALID", "SLURM_NODEID", "--ntasks={} --ntasks-per-node=1")
_MPI = {
    "pals": _Starter("mpiexec", "PALS_RANKID", "PALS_LOCAL_RANKID", "PALS_NODEID", "-n {} --ppn 1"),
    "hydra": _Starter("mpiexec", "PMI_RANK", "MPI_LOCALRANKID", "PMI_RANK", "-n {} -ppn 1"),
    "openmpi": _Starter(
        "mpirun", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_RANK",
        "-np {} --map-by ppr:1:node",
    ),
}  # fmt: skip


def _starter(launch: Launch, job: Allocation) -> _Starter:
    """What has started a launch; if that was the batch shell, what its job has."""
    one = launch.started[0]
    by_mpi = any(str(each["launcher"]).startswith("mpi") for each in one.launches)
    if job.scheduler == "slurm" and not by_mpi:
        return _SRUN
    known = (each for each in _MPI.values() if by_mpi and each.rank in one.environment)
    return next(known, _MPI.get(one.scenario.mpi, _MPI["openmpi"]))


def judge(launches: Sequence[Launch], job: Allocation) -> Iterator[Finding]:
    """All findings of ``launches``, without those that follow from another one."""
    found = list(_all(launches, job))
    crowded = {one.place for one in found if one.code in ("too-many-agents", "separate-worlds")}
    return (one for one in found if one.code != "shared-device" or one.place not in crowded)


def _all(launches: Sequence[Launch], job: Allocation) -> Iterator[Finding]:
    for launch in launches:
        yield from _agents(launch, job) if launch.agents else _ranks(launch, job)
        yield from _inherited(launch, job)
        yield from _order(launch)
        yield from _devices(launch, job)
    yield from _copies(launches)
    yield from _unused(launches, job)


def _error(code: str, launch: Launch, message: str, why: str, fix: str, *, likely: bool = False) -> Finding:
    confidence = Confidence.LIKELY if likely else Confidence.SURE
    return Finding(code, Severity.ERROR, message, f"launch {launch.number}", why, fix, confidence)


def _warning(code: str, launch: Launch, message: str, why: str, fix: str) -> Finding:
    return Finding(code, Severity.WARNING, message, f"launch {launch.number}", why, fix, Confidence.LIKELY)


def _hosts(launch: Launch) -> list[str]:
    return list(dict.fromkeys(one.host for one in launch.started))


def _list(words: Iterable[object], most: int = 6) -> str:
    texts = [str(word) for word in words]
    return ", ".join(texts[:most]) + (f" and {len(texts) - most} more" if len(texts) > most else "")


def _are(number: int) -> str:
    return f"{number} {'is' if number == 1 else 'are'}"


# ---- Agents: torchrun, accelerate launch, deepspeed


def _agents(launch: Launch, job: Allocation) -> Iterator[Finding]:
    agents = launch.agents
    name, starter = agents[0].launcher, _starter(launch, job)
    for note in dict.fromkeys(note for agent in agents for note in agent.notes):
        ends = "ends with an error" in note
        yield Finding(
            "bad-launcher-option", Severity.ERROR if ends else Severity.WARNING, note, f"launch {launch.number}",
            fix="print the option's value in the job script to see what it became",
        )  # fmt: skip
    many = [agent for agent in agents if agent.nodes > 1]
    if not many or agents[0].slots:
        return
    nodes = many[0].nodes
    once = f"start {name} once on every node: {starter.command} {starter.once.format(nodes)}"
    sizes = {agent.nodes for agent in agents}
    if len(sizes) > 1:
        message = f"agents of {name} expect different numbers of nodes: {_list(sorted(sizes))}"
        yield _error("world-size-mismatch", launch, message, _WAITS, "give all agents the same --nnodes")
    meetings = Counter((agent.endpoint, agent.run_id, agent.backend) for agent in agents)
    if len(meetings) > 1:
        seen = [
            endpoint + (f" (id {run_id})" if run_id != "none" else "") for endpoint, run_id, _ in meetings
        ]
        yield _error(
            "different-endpoints", launch, f"agents of {name} meet at {len(meetings)} different places: {_list(seen)}",
            _WAITS, "compute the address and the id once, in the batch shell, and give them to all agents",
        )  # fmt: skip
    if len(agents) < min(agent.least_nodes for agent in many):
        missing = [host for host in job.hosts if host not in _hosts(launch)]
        where = f"; none on {_list(missing)}" if missing else ""
        yield _error(
            "missing-agents", launch, f"{name} expects {nodes} agents, and {_are(len(agents))} started{where}", _WAITS,
            f"{once}, pbsdsh, or ssh",
        )  # fmt: skip
    if len(agents) > nodes:
        yield _error(
            "too-many-agents", launch, f"{name} expects {nodes} agents, and {len(agents)} are started",
            "The agents that are too many fail, or take the place of others.",
            once,
        )  # fmt: skip
    ranked = [(one.host, one.agent.node_rank) for one in launch.started if one.agent is not None]
    if len(agents) > nodes:  # those of one node have its rank
        ranked = list(dict.fromkeys(ranked))
    for rank, times in Counter(rank for _, rank in ranked if rank is not None).items():
        if times > 1:
            yield _error(
                "doubled-node-rank", launch, f"{times} agents of {name} have node rank {rank}", _WAITS,
                f"a variable such as ${starter.node} must be expanded on the node: {starter.command} bash -c "
                f"'… ${starter.node} …'",
            )  # fmt: skip
        if rank >= nodes:
            message = f"an agent of {name} has node rank {rank}, but there are {nodes} nodes"
            yield _error("rank-out-of-range", launch, message, _WAITS, "node ranks begin at 0")
    if len(meetings) == 1:
        heads = [
            one.host for one in launch.started if one.agent is not None and one.agent.node_rank in (0, None)
        ]
        address = many[0].endpoint.rpartition(":")[0]
        if not address:
            message = f"{name} on {nodes} nodes is given no address at which its agents meet"
            yield _error("no-endpoint", launch, message, f"{name} ends with an error.", _HEAD)
        yield from _head(launch, job, address, heads, "an agent listens only on its own node")


def _head(launch: Launch, job: Allocation, address: str, heads: Sequence[str], why: str) -> Iterator[Finding]:
    """Whether others can reach rank 0 at ``address``."""
    hosts = _hosts(launch)
    if not address:
        return
    if _is_loopback(address):
        if len(hosts) > 1:
            message = f"processes on {len(hosts)} nodes meet at {address}, which is each node itself"
            yield _error("local-endpoint", launch, message, f"Each node waits for itself: {why}.", _HEAD)
        return
    host = host_of(address, job)
    if host is None:
        why = "Only a process on that host can listen there."
        found = _warning("unknown-endpoint", launch, f"{address} is not a node of this job", why, _HEAD)
        if any(re.match(rf"{re.escape(each)}[a-z-]", address) for each in job.hosts):
            why += " At some sites a node's name with a suffix is the node on its fast network: there this is right."
            found = replace(found, severity=Severity.NOTE, why=why)
        yield found
    elif heads and host not in heads:
        yield _error(
            "wrong-head", launch, f"processes meet at {address}, but rank 0 is on {_list(dict.fromkeys(heads))}",
            f"Nobody listens at that address: {why}.", "MASTER_ADDR must be the node that has rank 0",
        )  # fmt: skip


def _is_loopback(address: str) -> bool:
    if address.lower() in ("localhost", "localhost.localdomain"):
        return True
    try:
        return ipaddress.ip_address(address.strip("[]")).is_loopback
    except ValueError:
        return False


def host_of(address: str, job: Allocation) -> str | None:
    """The node of ``job`` that has ``address``, a name or a number."""
    short = address.partition(".")[0]
    for host in job.hosts:
        if address in (host, job.address(host)) or short == host.partition(".")[0]:
            return host
    return None


# ---- Ranks: one process each


def _ranks(launch: Launch, job: Allocation) -> Iterator[Finding]:
    ranks = [one for one in launch.processes if one.rank is not None]
    if not ranks:
        return
    starter = _starter(launch, job)
    if all(one.source == "alone" for one in ranks):
        if len(ranks) > 1:
            needed = all(one.written_down.needs_rank for one in launch.started)
            end = (
                "it needs RANK, and ends with an error"
                if needed
                else "every copy trains the whole model alone"
            )
            yield _error(
                "independent-copies", launch, f"{len(ranks)} copies of the program run, and none knows of the others",
                "RANK and WORLD_SIZE are not set, and the program does not read what its launcher sets "
                f"({starter.rank}, …): {end}.",
                "set RANK, WORLD_SIZE and LOCAL_RANK in each task "
                f"({starter.command} bash -c 'RANK=${starter.rank} … exec python …'), or use torchrun", likely=True,
            )  # fmt: skip
        return
    yield from _numbers(launch, ranks, starter)
    many = max((one.world_size or 1) for one in ranks) > 1
    empty = [one for one in ranks if one.environment.get("MASTER_ADDR") == ""]
    if many and empty and all(one.environment.get("MASTER_PORT") for one in empty):
        yield _error(
            "no-endpoint", launch, f"MASTER_ADDR is empty in {len(empty)} of {len(ranks)} processes",
            "init_process_group ends with an error.", f"print MASTER_ADDR in the job script; {_HEAD}",
            likely=True,
        )  # fmt: skip
        return
    if ranks[0].source == "RANK" and many:
        meetings = sorted({one.meeting for one in ranks})
        if any(not one or one.endswith(":") for one in meetings):
            yield _error(
                "no-endpoint", launch, "RANK and WORLD_SIZE are set, but not both MASTER_ADDR and MASTER_PORT",
                "init_process_group ends with an error.", "export MASTER_ADDR and MASTER_PORT",
            )  # fmt: skip
            return
        if len(meetings) > 1:
            yield _error(
                "different-endpoints", launch, f"ranks meet at {len(meetings)} different places: {_list(meetings)}",
                _HANGS, "compute MASTER_ADDR and MASTER_PORT once, in the batch shell",
            )  # fmt: skip
            return
    meeting = ranks[0].meeting
    if meeting and len(ranks) > 1 and all(one.meeting == meeting for one in ranks):
        heads = [one.host for one in ranks if one.rank == 0]
        yield from _head(launch, job, meeting.rpartition(":")[0], heads, "rank 0 listens on its own node")


def _inherited(launch: Launch, job: Allocation) -> Iterator[Finding]:
    """Workers of an agent that read the rank of the agent itself."""
    ranks = [
        one for one in launch.processes if one.agent is not None and not one.source.startswith(one.launcher)
    ]
    times = Counter((one.agent, one.rank) for one in ranks)
    if not times or max(times.values()) == 1:
        return
    one = ranks[0]
    name, number = one.launcher, len([each for each in ranks if each.rank == one.rank])
    yield _error(
        "doubled-rank", launch, f"{number} processes have rank {one.rank}: each reads {one.source}",
        f"{name} starts them, and they inherit {one.source} from it. Each trains alone, or waits for the others.",
        f"read RANK, WORLD_SIZE and LOCAL_RANK, which {name} sets, or start one python for each rank by "
        f"{_starter(launch, job).command}",
    )  # fmt: skip


def _numbers(launch: Launch, ranks: Sequence[Process], starter: _Starter) -> Iterator[Finding]:
    doubled = {rank: times for rank, times in Counter(one.rank for one in ranks).items() if times > 1}
    if doubled:
        rank, times = next(iter(doubled.items()))
        message = f"{times} processes have rank {rank}"
        if len(doubled) > 1:
            message = f"{len(doubled)} ranks are given twice or more: {_list(doubled)}"
        yield _error(
            "doubled-rank", launch, message,
            f"A variable that is expanded in the batch shell has that shell's value in every task. {_HANGS}",
            f"expand it in the task, by single quotes: {starter.command} bash -c 'export RANK=${starter.rank}; exec "
            "python …'",
        )  # fmt: skip
    # A task that reads no rank, a server beside its workers, says nothing of their world size.
    sizes = sorted({one.world_size for one in ranks if one.world_size is not None and one.source != "alone"})
    if len(sizes) > 1:
        message = f"processes have different world sizes: {_list(sizes)}"
        yield _error("world-size-mismatch", launch, message, _HANGS, "give all processes the same WORLD_SIZE")
        return
    if not sizes:
        return
    own = ranks[0].own_size
    beyond = [one.rank for one in ranks if one.rank is not None and one.rank >= sizes[0]]
    if beyond:
        yield _error(
            "rank-out-of-range", launch, f"rank {beyond[0]} is not below the world size {sizes[0]}",
            f"The program itself says {own}." if own else "init_process_group refuses it, or waits for ever.",
            "read the number in the program: WORLD_SIZE, SLURM_NTASKS" if own
            else "WORLD_SIZE must be the number of all processes",
        )  # fmt: skip
    if len(ranks) < sizes[0]:
        yield _error(
            "world-size-mismatch", launch, f"the world size is {sizes[0]}, and {_are(len(ranks))} started", _HANGS,
            "read the number in the program: WORLD_SIZE, SLURM_NTASKS" if own
            else f"start one process for each rank, e.g. by {starter.command}, or set WORLD_SIZE to what is started",
            likely=ranks[0].source != "RANK",
        )  # fmt: skip


# ---- Order, devices, nodes


def _order(launch: Launch) -> Iterator[Finding]:
    """Parts of one world that are started one after another, each in the foreground: the first never ends."""
    roots = list(dict.fromkeys(one.root for one in launch.started))
    waiting = [one for one in launch.started if one.root in roots[:-1] and not one.background]
    if waiting:
        first = waiting[0]
        name = first.launches[0]["argv"][0] if first.launches else first.event["name"]
        yield _error(
            "would-hang", launch, f"the script waits for the {name} of {first.host} before it starts the others",
            "The first waits for the others, which are started only after it has ended.",
            "write & after each of them, and `wait` after the loop",
        )  # fmt: skip


def _devices(launch: Launch, job: Allocation) -> Iterator[Finding]:
    if not any(job.gpus):
        return
    starter = _starter(launch, job)
    lost = [one for one in launch.processes if one.index is not None and one.device == "-"]
    if lost:
        one = lost[0]
        by_local_rank = one.index == one.local_rank
        kind = "local rank" if by_local_rank else "device"
        # What the program says itself is sure. The local rank is only what most programs take.
        sure = one.source != "its arguments" and all(
            each.written_down.device is not None for each in launch.started
        )
        yield (_error if sure else _warning)(
            "no-such-device", launch,
            f"{len(lost)} of {len(launch.processes)} processes find no GPU for their {kind}: rank {one.rank} on "
            f"{one.host} {'has local rank ' if by_local_rank else 'takes cuda:'}{one.index}",
            "torch ends with 'invalid device ordinal', or several processes share a GPU.",
            "start as many processes on a node as it has GPUs" if by_local_rank
            else f"choose the GPU by LOCAL_RANK (torchrun) or {starter.local} ({starter.command})",
        )  # fmt: skip
    users: dict[tuple[str, str], int] = Counter(
        (one.host, device) for one in launch.processes if one.source != BY_ITSELF for device in one.devices
    )
    shared = [place for place, number in users.items() if number > 1]
    if shared:
        host, device = shared[0]
        more = f", and so are {len(shared) - 1} more GPUs" if len(shared) > 1 else ""
        yield _warning(
            "shared-device", launch, f"GPU {device} of {host} is used by {users[shared[0]]} processes{more}",
            "They share its memory and its time; NCCL refuses two ranks on one GPU.",
            f"start one {launch.agents[0].launcher} on a node, and choose the GPU by the LOCAL_RANK that it sets"
            if launch.agents
            else f"LOCAL_RANK must count the processes of a node: LOCAL_RANK=${starter.local}, expanded in the task",
        )  # fmt: skip


def _copies(launches: Sequence[Launch]) -> Iterator[Finding]:
    """torchrun for one node, on several nodes or several times: each is a world of its own."""
    alone: dict[tuple[str, ...], list[Launch]] = {}
    for launch in launches:
        for one in launch.started:
            if one.agent is not None and one.agent.nodes == 1 and not one.agent.slots:
                alone.setdefault((one.agent.launcher, *one.agent.command), []).append(launch)
    for (name, *_), found in alone.items():
        hosts = {one.host for launch in found for one in launch.started}
        if len(found) > 1 and (len(hosts) > 1 or len({launch.number for launch in found}) == 1):
            yield _error(
                "separate-worlds", found[0], f"{len(found)} agents of {name} start, and each forms a world of its own",
                "Every one of them trains the whole model, and they write over each other's files.",
                "give --nnodes, --node_rank and a common endpoint, and start one agent on every node",
            )  # fmt: skip


def _unused(launches: Sequence[Launch], job: Allocation) -> Iterator[Finding]:
    processes = [one for launch in launches for one in launch.processes]
    used = {one.host for one in processes}
    idle = [host for host in job.hosts if host not in used]
    gpus = sum(job.gpus)
    if job.no_kill:  # they are spare ones
        gpus = sum(have for host, have in zip(job.hosts, job.gpus, strict=True) if host not in idle)
        idle = []
    if processes and idle:
        yield Finding(
            "idle-nodes", Severity.WARNING, f"no process trains on {_list(idle)}: {len(idle)} of {job.num_nodes} nodes",
            why="Only srun, mpirun, pbsdsh, ssh and the like reach other nodes than the first.",
            fix="start the training on all nodes, or ask for fewer",
        )  # fmt: skip
    elif processes and gpus and all(one.device != "-" for one in processes):
        unused = gpus - len({(one.host, device) for one in processes for device in one.devices})
        if unused > 0:
            yield Finding(
                "idle-gpus", Severity.WARNING, f"{unused} of {gpus} GPUs are used by no process",
                fix="start one process for each GPU, or ask for fewer", confidence=Confidence.LIKELY,
            )  # fmt: skip
