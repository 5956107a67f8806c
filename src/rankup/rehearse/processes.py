"""The log of a rehearsal → the processes that would train, with their ranks, devices and where they meet."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from rankup.errors import RankupError
from rankup.rehearse.launch_options import Agent, agent_of
from rankup.rehearse.scenario import Scenario
from rankup.rehearse.written_down import WrittenDown, written_down
from rankup.world import World

_RANKS = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "NODE_RANK", "GROUP_RANK")
#: What a program may read by itself to learn its rank, and libraries that do.
_READS_LAUNCHER = re.compile(
    r"SLURM_PROCID|SLURM_LOCALID|SLURM_NODEID|OMPI_COMM_WORLD|PMI_RANK|PMIX_RANK|PALS_RANK|MV2_COMM|PBS_NODENUM|"
    r"\b(lightning|pytorch_lightning|submitit|idr_torch|mpi4py|rankup|horovod|ezpz|composer|jax|hostlist|torch_ezpz|MPI)\b"
)
_READS_RANK = re.compile(r"""["'](RANK|LOCAL_RANK|WORLD_SIZE)["']|init_process_group|init_distributed|Accelerator\(|"""
                         r"""init_device_mesh|TrainingArguments|HfArgumentParser""")  # fmt: skip
_READS_SIZE = re.compile(r"""SLURM_PROCID(?s:.*)["']WORLD_SIZE["']|["']WORLD_SIZE["'](?s:.*)SLURM_PROCID""")
_RANK_ARGUMENTS = re.compile(
    r"^--?(rank|node[-_]?rank|world[-_]size|dist[-_]url|local[-_]rank|nodes|num[-_]nodes|gpu)\b"
)
_SPAWNS = re.compile(
    r"\bmp\.spawn\(|multiprocessing\.spawn\(|\bnotebook_launcher\(|\bstart_processes\(|\bray\b|(?<!Distributed)DataParallel\("
)
#: Libraries that start a process for each GPU where no launcher has started them.
_SPAWNS_ALONE = re.compile(r"\b(lightning|pytorch_lightning)\b")
BY_ITSELF = "the program itself"  # it makes its ranks: how many, and on which devices, is not known


@dataclass(frozen=True)
class Process:
    """One process that would train. What is not known is None."""

    launch: int  # the number of its launch, from 1
    host: str
    node_rank: int | None
    rank: int | None
    local_rank: int | None
    world_size: int | None
    device: str  # "2", "0,1,2,3" (all that it sees), "-" (none)
    cpus: str
    meeting: str  # MASTER_ADDR:MASTER_PORT
    command: str
    folder: str
    launcher: str  # torchrun, srun, openmpi, …, python
    source: str  # where rank and world size come from: torchrun, RANK, SLURM_PROCID, …
    agent: int | None = None  # the number of its agent in the launch's world
    environment: Mapping[str, str] = field(default_factory=dict)
    index: int | None = None  # of the device that it takes, among those that it sees; None: it takes none
    own_size: int | None = None  # the world size that the program writes down

    @property
    def devices(self) -> tuple[str, ...]:
        return () if self.device == "-" else tuple(self.device.split(","))

    def as_dict(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in self.__dataclass_fields__}


@dataclass
class Started:
    """A program that the script started (an agent, or a rank), as it was recorded."""

    event: Mapping[str, Any]
    launches: tuple[Mapping[str, Any], ...]  # from the outermost to the innermost
    scenario: Scenario
    agent: Agent | None = None

    @property
    def environment(self) -> Mapping[str, str]:
        env: Mapping[str, str] = self.event["environment"]
        return env

    @property
    def host(self) -> str:
        return str(self.event["host"])

    @property
    def node(self) -> int | None:
        number: int | None = self.event["node"]
        return number

    @property
    def root(self) -> str:
        """The outermost launch; a program that the script itself starts is its own."""
        return str(self.launches[0]["id"]) if self.launches else f"pid {self.event['pid']}"

    @property
    def background(self) -> bool:
        """Whether the script goes on while it runs."""
        return bool(self.launches[0]["background"] if self.launches else self.event["background"])

    @property
    def program(self) -> Mapping[str, Any]:
        found: Mapping[str, Any] = self.event["program"]
        return found

    @property
    def visible(self) -> list[str]:
        """The GPUs that it sees."""
        if self.node is None:
            return []
        count = self.scenario.allocation.gpus[self.node]
        given = self.environment.get("CUDA_VISIBLE_DEVICES")
        if given is None:
            return [str(number) for number in range(count)]
        shown = []
        for one in given.split(","):  # an invalid entry hides itself and all that follow
            if not one or one.startswith("-") or (one.isdigit() and int(one) >= count):
                break
            shown.append(one)
        return shown if count else []

    @property
    def cpus(self) -> tuple[int, int]:
        """(CPUs that it may use, processes that share them)."""
        for launch in reversed(self.launches):
            if "cpus" in launch:
                hosts = list(launch["hosts"])
                if self.host in hosts:
                    index = hosts.index(self.host)
                    each = launch.get("cpus_per_task")
                    count = max(1, launch["counts"][index])
                    room = launch["cpus"][index]
                    return (each, 1) if each else (room // count, 1) if room == count else (room, count)
        if self.node is None:
            return 0, 1
        return self.scenario.allocation.cpus[self.node], 1

    def outlives(self, end: Mapping[str, Any]) -> bool:
        """Whether it, or what has started it, ran on after the script's ``end``, or was started then."""
        own = {self.event["pid"], *(int(one["id"].rpartition("/")[2]) for one in self.launches)}
        return self.event["time"] > end["time"] or not own.isdisjoint(end["left"])

    @property
    def missing(self) -> bool:
        """Whether its program is not there."""
        return bool(self.program["missing"])

    @cached_property
    def written_down(self) -> WrittenDown:
        return written_down(self.program["path"])

    def device(self, rank: int | None, local_rank: int | None) -> tuple[str, int | None]:
        """(the GPU, its number among those that it sees) of one rank."""
        index = self.written_down.index(rank, local_rank)
        visible = self.visible
        there = index is not None and index < len(visible)
        return visible[index] if there and index is not None else "-", index

    @cached_property
    def command(self) -> str:
        return " ".join(self.event["argv"])


def started(scenario: Scenario, events: Iterable[Mapping[str, Any]]) -> list[Started]:
    """The recorded programs, in the order of their starts, with the launches that they belong to."""
    launches: dict[str, Mapping[str, Any]] = {}
    found = []
    for event in events:
        if event["kind"] == "launch":
            launches[event["id"]] = event
        elif event["kind"] == "program":
            parts = [part for part in event["group"].split("/") if part]
            ids = ["/".join(parts[: index + 1]) for index in range(len(parts))]
            one = Started(event, tuple(launches[each] for each in ids if each in launches), scenario)
            if one.program["kind"] == "launcher":
                one.agent = _agent(one)
            found.append(one)
    return found


def _agent(one: Started) -> Agent:
    return agent_of(
        one.program["launcher"], one.program["arguments"], one.environment, Path(one.event["cwd"]),
        len(one.visible), one.cpus[0], lambda path: one.event.get("file"),
    )  # fmt: skip


@dataclass
class Launch:
    """Programs that belong together: the agents of one rendezvous, or the ranks of one world."""

    number: int
    started: list[Started]
    processes: list[Process] = field(default_factory=list)

    @property
    def agents(self) -> list[Agent]:
        return [one.agent for one in self.started if one.agent is not None]


def launches(found: list[Started]) -> list[Launch]:
    """The launches of ``found``."""
    by_root: dict[str, list[Started]] = {}
    for one in sorted(found, key=_order):
        by_root.setdefault(one.root + one.program["target"], []).append(one)
    made: dict[str, Launch] = {}
    for root, together in by_root.items():
        key = root if _complete(together) else _meaning(together[0])
        made.setdefault(key, Launch(len(made) + 1, [])).started += together
    for launch in made.values():
        arrivals: dict[tuple[str, ...], int] = {}
        for one in launch.started:
            if one.agent is not None:
                launch.processes += _workers(one, one.agent, launch.number, arrivals)
            else:
                launch.processes.append(_lone(one, launch.number, one.event.get("text", "")))
        launch.processes.sort(key=lambda one: (one.rank is None, one.rank or 0))
    return list(made.values())


def _order(one: Started) -> tuple[float, int, int]:
    """By launch, then by rank: tasks of a step start in any order."""
    first = float(one.launches[0]["time"]) if one.launches else float(one.event["time"])
    rank = one.environment.get("SLURM_PROCID", "0") if one.launches else "0"
    names = ("OMPI_COMM_WORLD_RANK", "PMI_RANK", "PALS_RANKID")
    own = next((one.environment[name] for name in names if name in one.environment), rank)
    return first, int(own) if own.isdigit() else 0, one.event["pid"]


def _complete(together: list[Started]) -> bool:
    """Whether what one launch has started is a world by itself: then a second launch is another one."""
    first = together[0]
    if first.agent is not None:
        return len(together) >= first.agent.nodes
    if any(_RANK_ARGUMENTS.match(word) for word in first.program["arguments"]):
        return len(together) > 1
    size = _number(first.environment.get("WORLD_SIZE", "")) if "RANK" in first.environment else 1
    return len(together) >= (size or 1)


def _meaning(one: Started) -> str:
    """What launches have in common that mean to be one world."""
    if one.agent is not None:
        return f"{one.agent.launcher} {one.agent.backend} {' '.join(one.agent.command)}"
    if "RANK" in one.environment:
        return f"RANK {one.program['target']} {one.environment.get('WORLD_SIZE')}"
    return f"arguments {one.program['target']}"


def _workers(one: Started, agent: Agent, number: int, arrivals: dict[tuple[str, ...], int]) -> list[Process]:
    key = (agent.endpoint, agent.run_id, agent.backend)
    arrived = arrivals.get(key, 0)
    arrivals[key] = arrived + 1
    node_rank = arrived if agent.node_rank is None else agent.node_rank
    command = _worker_command(agent)
    own = one.written_down.world_size
    world = own or agent.world or agent.nodes * agent.workers
    places = agent.slots or ((one.host, agent.workers),)
    source = agent.launcher + (", by arrival" if agent.node_rank is None else "")
    made, first = [], node_rank * agent.workers
    by, inherited = one.written_down.rank_by, None
    if by not in _RANKS and by in one.environment:  # the agent's own rank, which its workers inherit
        inherited, source = _number(one.environment[by]), by
        if one.written_down.size_by not in ("", *_RANKS):
            world = _number(one.environment.get(one.written_down.size_by, "")) or world
    cpus, sharing = one.cpus
    for index, (host, count) in enumerate(places):
        for local in range(count):
            rank = first + local if inherited is None else inherited
            device, taken = one.device(rank, local)
            made.append(Process(
                number, host, node_rank + index, rank, local, world, device, _cpus_text(cpus, sharing * count),
                agent.master or _c10d_master(one, agent), command, one.event["cwd"], agent.launcher, source, arrived,
                one.environment, taken, own,
            ))  # fmt: skip
        first += count
    return made


def _c10d_master(one: Started, agent: Agent) -> str:
    own = agent.local_addr or one.host
    return f"{own}:(free port)" if agent.nodes == 1 else "(first to arrive):(free port)"


def _worker_command(agent: Agent) -> str:
    if not agent.command:
        return "(no program)"
    python = "python " if agent.target.endswith(".py") else "python -m " if agent.is_module else ""
    return python + " ".join(agent.command)


def _cpus_text(cpus: int, sharing: int) -> str:
    return str(cpus) if sharing <= 1 else f"{cpus}/{sharing}"


def _lone(one: Started, number: int, text: str) -> Process:
    """A program that no torchrun starts: it learns its rank from RANK, or from what its launcher sets."""
    env = one.environment
    world, own = _launcher_world(env), one.written_down.world_size
    rank: int | None = world.rank
    local: int | None = world.local_rank
    size: int | None = world.world_size
    source = world.sources.get("rank", world.launcher if world.launcher != "none" else "alone")
    names = [word for word in one.program["arguments"] if "_" in word]  # of variables: --rank-from PMI_RANK
    reads_launcher = bool(_READS_LAUNCHER.search(text) or any(map(_READS_LAUNCHER.match, names)))
    if env.get("RANK") and not (reads_launcher and not _READS_RANK.search(text)):
        rank, size = _number(env["RANK"]), _number(env.get("WORLD_SIZE", ""))
        local = _number(env["LOCAL_RANK"]) if "LOCAL_RANK" in env else local
        source = "RANK"
    elif any(_RANK_ARGUMENTS.match(word) for word in one.program["arguments"]):
        source = "its arguments"
        rank = _argument(one, "rank", "node_rank", "node-rank")
        size = _argument(one, "world_size", "world-size", "nodes")
    elif text and not reads_launcher:
        # Nothing tells it of the others: it is alone, however many copies there are.
        rank, size, source = 0, 1, "alone"
    elif not text and world.launcher != "none":
        source += ", if the program reads it"
    elif env.get("SLURM_PROCID") and (own or (env.get("WORLD_SIZE") and _READS_SIZE.search(text))):
        # The rank is SLURM's, also in the batch shell, where it is 0; the size is what the script exports.
        rank, source = _number(env["SLURM_PROCID"]), "SLURM_PROCID"
        size = own or _number(env["WORLD_SIZE"])
    if own is not None and source != "alone":
        size = own
    index: int | None = None
    if len(one.visible) == 1 and one.written_down.device is None:
        device = one.visible[0]
    else:
        device, index = one.device(rank, local)
    alone = not one.launches and not env.get("RANK")
    if _SPAWNS.search(text) or (alone and _SPAWNS_ALONE.search(text)):
        rank, local, size, index = None, None, None, None
        device, source = ",".join(one.visible) or "-", BY_ITSELF
    address = env.get("MASTER_ADDR", "")
    meeting = f"{address}:{env.get('MASTER_PORT', '')}" if address else ""
    launcher = one.launches[-1]["launcher"] if one.launches else "the batch shell"
    cpus, sharing = one.cpus
    return Process(
        number, one.host, world.node_rank if world.launcher != "none" else one.node, rank, local, size, device,
        _cpus_text(cpus, sharing), meeting, one.command, one.event["cwd"], launcher, source, None, env, index, own,
    )  # fmt: skip


def _launcher_world(env: Mapping[str, str]) -> World:
    try:
        return World.detect({name: value for name, value in env.items() if name not in _RANKS})
    except RankupError:
        return World()


def _number(text: str) -> int | None:
    return int(text) if text.strip().isdigit() else None


def _argument(one: Started, *names: str) -> int | None:
    words = list(one.program["arguments"])
    for index, word in enumerate(words):
        name, equals, value = word.lstrip("-").partition("=")
        if word.startswith("-") and name in names:
            return _number(value if equals else next(iter(words[index + 1 : index + 2]), ""))
    return None
