"""The options of torchrun, ``accelerate launch``, ``deepspeed`` and ``horovodrun``: what their agents would start."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path


@dataclass(frozen=True)
class Agent:
    """One agent of a launcher: how many workers it starts, and where it meets the other agents."""

    launcher: str
    nodes: int = 1
    least_nodes: int = 1
    workers: int = 1  # on this node
    node_rank: int | None = 0  # None: numbered in the order of arrival
    endpoint: str = ""  # host:port of the agents' meeting; "": chosen by itself, one node alone
    run_id: str = "none"
    backend: str = "static"
    master: str = ""  # MASTER_ADDR:MASTER_PORT of the workers; "": that of the first agent
    command: tuple[str, ...] = ()
    target: str = ""  # the program, "" if it is not a Python file
    is_module: bool = False
    notes: tuple[str, ...] = ()
    known: bool = True  # False: the number of workers comes from a file that is not here
    world: int | None = None  # where it is not nodes * workers
    slots: tuple[
        tuple[str, int], ...
    ] = ()  # hosts that this one process reaches by itself (deepspeed, horovodrun)
    local_addr: str = ""  # by which this agent says that it is reached


@dataclass
class _Parsed:
    options: dict[str, str] = field(default_factory=dict)
    rest: list[str] = field(default_factory=list)


def _parse(words: Sequence[str], flags: frozenset[str], short: Mapping[str, str]) -> _Parsed:
    """Long options with - or _, as argparse takes them, up to the program."""
    parsed, rest = _Parsed(), list(words)
    while rest:
        word = rest.pop(0)
        if word == "--":
            break
        if not word.startswith("-") or word == "-":
            rest.insert(0, word)
            break
        name, equals, value = word.partition("=")
        name = short.get(name, name).lstrip("-").replace("-", "_")
        if not equals and name not in flags:
            value = rest.pop(0) if rest else ""
        parsed.options[name] = value
    parsed.rest = rest
    return parsed


def _number(text: str, default: int | None) -> int | None:
    return int(text) if re.fullmatch(r"\d+", text) else default


_TORCHRUN_FLAGS = frozenset({"standalone", "module", "m", "no_python", "run_path", "use_env", "help", "h"})
_TORCHRUN_SHORT = {"-m": "module", "-r": "redirects", "-t": "tee"}


def torchrun(
    args: Sequence[str], env: Mapping[str, str], gpus: int, cpus: int, launch: bool = False
) -> Agent:
    """torchrun and ``python -m torch.distributed.run`` (``launch``: the older one)."""
    parsed = _parse(args, _TORCHRUN_FLAGS, _TORCHRUN_SHORT)
    options = {
        **{
            name[4:].lower(): value
            for name, value in env.items()
            if name.startswith("PET_") and name[4:].lower() not in _TORCHRUN_FLAGS
        },
        **parsed.options,
    }
    notes: list[str] = []
    low, _, high = options.get("nnodes", "1:1").partition(":")
    least = _number(low, None)
    most = _number(high, None) if high else least
    if least is None or most is None:
        notes.append(f"--nnodes={options.get('nnodes')!r} is not a number: torchrun ends with an error")
        least = most = 1
    nproc = options.get("nproc_per_node", "1")
    workers = {"gpu": gpus, "cpu": cpus, "auto": gpus or cpus}.get(nproc, _number(nproc, None))
    if workers is None or workers == 0:
        notes.append(f"--nproc_per_node={nproc!r} gives no worker: torchrun ends with an error")
    backend, run_id = options.get("rdzv_backend", "static"), options.get("rdzv_id", "none")
    address, port = options.get("master_addr", "127.0.0.1"), options.get("master_port", "29500")
    endpoint = options.get("rdzv_endpoint", "")
    node_rank: int | None = _number(options.get("node_rank", "0"), None)
    if node_rank is None:
        notes.append(f"--node_rank={options.get('node_rank')!r} is not a number: torchrun ends with an error")
    if "standalone" in parsed.options:
        backend, endpoint, run_id, least, most = "standalone", "", "", 1, 1
    master = ""
    if backend == "static":
        endpoint = endpoint or f"{address}:{port}"
        master = endpoint if ":" in endpoint.rpartition("]")[2] else f"{endpoint}:29500"
        endpoint = master
    else:
        node_rank = None if backend != "standalone" else 0
        if backend != "standalone":
            endpoint = endpoint if not endpoint or ":" in endpoint.rpartition("]")[2] else f"{endpoint}:29400"
    module = "module" in parsed.options or "m" in parsed.options
    rest = tuple(parsed.rest)
    no_python = "no_python" in parsed.options
    return Agent(
        "torchrun", most, least, workers or 0, node_rank, endpoint, run_id, backend, master, rest,
        "" if no_python else next(iter(rest), ""), module, tuple(notes), local_addr=options.get("local_addr", ""),
    )  # fmt: skip


_ACCELERATE_FLAGS = frozenset(
    [
        "multi_gpu",
        "cpu",
        "tpu",
        "ipex",
        "use_xpu",
        "mps",
        "use_deepspeed",
        "use_fsdp",
        "use_megatron_lm",
        "use_mps_device",
        "debug",
        "module",
        "m",
        "no_python",
        "quiet",
        "q",
        "same_network",
        "standalone",
        "use_parallelism_config",
        "enable_cpu_affinity",
    ]
)


def accelerate(args: Sequence[str], env: Mapping[str, str], gpus: int, cwd: Path) -> Agent:
    """``accelerate launch``: options over its configuration file over what it finds on the node."""
    parsed = _parse(args, _ACCELERATE_FLAGS, {"-m": "module", "-q": "quiet"})
    options, notes, known = parsed.options, [], True
    config: dict[str, str] = {}
    file = options.get("config_file", "")
    default = Path(
        env.get("HF_HOME", str(Path(env.get("HOME", "/"), ".cache", "huggingface"))),
        "accelerate",
        "default_config.yaml",
    )
    path = Path(cwd, file) if file else default
    if path.is_file():
        config = _yaml(path)
    elif file and not {"num_machines", "num_processes"} <= options.keys():
        notes.append(f"accelerate's configuration {file} is not here: its sizes are not known")
        known = False

    def value(option: str, key: str = "", default: str = "") -> str:
        return options.get(option) or config.get(key or option) or default

    nodes = _number(value("num_machines", default="1"), 1) or 1
    total = _number(value("num_processes"), None)
    if total is None:
        total = (gpus or 1) * nodes
        if nodes > 1 and known:
            notes.append(
                f"accelerate launch has no --num_processes: {total} are assumed, all GPUs of all nodes"
            )
    node_rank: int | None = _number(value("machine_rank", default="0"), None)
    address, port = value("main_process_ip", default="127.0.0.1"), value("main_process_port", default="29500")
    backend = value("rdzv_backend", default="static")
    if nodes > 1 and not value("main_process_ip"):
        notes.append("accelerate launch on several nodes has no --main_process_ip")
    if total % nodes:
        notes.append(
            f"--num_processes={total} is the number of all processes; {nodes} nodes do not divide it"
        )
    meeting = f"{address}:{port}"
    if backend != "static":
        node_rank = None
    return Agent(
        "accelerate", nodes, nodes, total // nodes, node_rank, meeting, "none", backend,
        meeting if backend == "static" else "",
        tuple(parsed.rest), next(iter(parsed.rest), ""), "module" in options, tuple(notes), known,
    )  # fmt: skip


def _yaml(path: Path) -> dict[str, str]:
    """The top level of a simple YAML file."""
    found = {}
    for line in path.read_text(errors="replace").splitlines():
        match = re.match(r"(\w+):[ \t]*(\S.*?)[ \t]*$", line)
        if match:
            found[match[1]] = match[2].strip("'\"")
    return found


_DEEPSPEED_FLAGS = frozenset(
    [
        "no_python",
        "no_local_rank",
        "no_ssh",
        "no_ssh_check",
        "module",
        "m",
        "enable_each_rank_log",
        "save_pid",
        "bind_cores_to_rank",
        "force_multi",
        "use_bind",
        "elastic_training",
        "quick_start",
        "venv_script",
    ]
)


def deepspeed(args: Sequence[str], env: Mapping[str, str], gpus: int, cwd: Path) -> Agent:
    """The ``deepspeed`` command: it reaches the hosts of its host file itself, by ssh."""
    parsed = _parse(args, _DEEPSPEED_FLAGS, {"-H": "hostfile", "-i": "include", "-e": "exclude"})
    options, notes = parsed.options, []
    slots: list[tuple[str, int]] = []
    file = options.get("hostfile", "/job/hostfile")
    path = Path(cwd, file)
    if path.is_file():
        for line in path.read_text(errors="replace").splitlines():
            words = line.partition("#")[0].split()
            if words:
                count = next((word[6:] for word in words[1:] if word.startswith("slots=")), "")
                slots.append((words[0], _number(count, None) or gpus or 1))
    elif "hostfile" in options:
        notes.append(f"the host file {file} is not there: deepspeed uses this node alone")
    workers = _number(options.get("num_gpus", "-1"), None) or gpus or 1
    address, port = options.get("master_addr", ""), options.get("master_port", "29500")
    many = _number(options.get("num_nodes", ""), None) or 0
    node_rank: int | None = 0
    if "no_ssh" in options:
        nodes, node_rank, slots = many or len(slots) or 1, _number(options.get("node_rank", ""), None), []
    else:
        slots = slots[: many or None]
        if "num_gpus" in options:
            slots = [(host, workers) for host, _ in slots]
        nodes = len(slots) or 1
        if many > nodes:
            notes.append(f"--num_nodes={many}, but the host file names {nodes}: deepspeed ends with an error")
    master = f"{address or (slots[0][0] if slots else '127.0.0.1')}:{port}"
    return Agent(
        "deepspeed", nodes, nodes, slots[0][1] if slots else workers, node_rank, master, "none", "static", master,
        tuple(parsed.rest), next(iter(parsed.rest), ""), "module" in options, tuple(notes), True,
        sum(count for _, count in slots) or None, tuple(slots),
    )  # fmt: skip


def horovodrun(args: Sequence[str]) -> Agent:
    parsed = _parse(
        args, frozenset({"verbose", "disable_cache", "gloo", "mpi", "autotune"}), {"-np": "np", "-H": "hosts"}
    )
    total = _number(parsed.options.get("np", "1"), 1) or 1
    slots = []
    for one in filter(None, parsed.options.get("hosts", "").split(",")):
        host, _, count = one.partition(":")
        slots.append((host, _number(count, 1) or 1))
    rest = tuple(parsed.rest)
    target = next((word for word in rest if word.endswith(".py")), "")
    return Agent(
        "horovodrun",
        len(slots) or 1,
        1,
        total,
        0,
        "",
        command=rest,
        target=target,
        world=total,
        slots=tuple(slots),
    )
