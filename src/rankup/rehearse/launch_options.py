"""The options of torchrun, ``accelerate launch``, ``deepspeed`` and ``horovodrun``: what their agents would start."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from rankup.launch_grammar.accelerate_config import accelerate_config
from rankup.launch_grammar.options import grammar_of
from rankup.launch_grammar.reader import CommandLine, Text, read_text

#: A path → the text of the configuration or host file that is there.
ReadFile = Callable[[Path], "str | None"]


def text_of(path: Path) -> str | None:
    return path.read_text(errors="replace") if path.is_file() else None


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
    slots: tuple[tuple[str, int], ...] = ()  # hosts that it reaches by itself (deepspeed, horovodrun)
    local_addr: str = ""  # by which this agent says that it is reached


def _refused(launcher: str, line: CommandLine[Text]) -> list[str]:
    """What the launcher says of a command line that it does not take."""
    if line.unknown:
        return [f"{launcher} has no option {', '.join(line.unknown)}: it ends with an error"]
    return [f"{launcher}: {line.problem}: it ends with an error"] if line.problem else []


def _from_variables(env: Mapping[str, str]) -> dict[str, str]:
    """torchrun's options that PET_* variables give: each that has a value, and flags that are not 0."""
    found = {}
    for option in grammar_of("torchrun").options:
        value = env.get(f"PET_{option.meaning.upper()}", "")
        if value and (option.values or value != "0"):
            found[option.meaning] = value
    return found


def _number(text: str, default: int | None) -> int | None:
    return int(text) if re.fullmatch(r"\d+", text) else default


def agent_of(
    launcher: str,
    args: Sequence[str],
    env: Mapping[str, str],
    cwd: Path,
    gpus: int = 1,
    cpus: int = 1,
    read: ReadFile = text_of,
) -> Agent:
    """The agent that a launcher's command line starts on a node with ``gpus`` and ``cpus``."""
    if launcher == "accelerate":
        return accelerate(args, env, gpus, cwd, read)
    if launcher == "deepspeed":
        return deepspeed(args, env, gpus, cwd, read)
    if launcher == "horovodrun":
        return horovodrun(args)
    return torchrun(args, env, gpus, cpus, launcher == "launch")


def torchrun(
    args: Sequence[str], env: Mapping[str, str], gpus: int, cpus: int, launch: bool = False
) -> Agent:
    """torchrun and ``python -m torch.distributed.run`` (``launch``: the older one)."""
    parsed = read_text("launch" if launch else "torchrun", args)
    options = {**_from_variables(env), **parsed.options}
    notes = _refused("torchrun", parsed)
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
    if "standalone" in options:
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
    rest, no_python = parsed.rest, "no_python" in options
    return Agent(
        "torchrun", most, least, workers or 0, node_rank, endpoint, run_id, backend, master, rest,
        "" if no_python else next(iter(rest), ""), "module" in options, tuple(notes),
        local_addr=options.get("local_addr", ""),
    )  # fmt: skip


def accelerate(
    args: Sequence[str], env: Mapping[str, str], gpus: int, cwd: Path, read: ReadFile = text_of
) -> Agent:
    """``accelerate launch``: options over its configuration file over what it finds on the node."""
    parsed = read_text("accelerate", args)
    options, notes, known = parsed.options, _refused("accelerate launch", parsed), True
    config: dict[str, str] = {}
    file = options.get("config_file", "")
    default = Path(
        env.get("HF_HOME", str(Path(env.get("HOME", "/"), ".cache", "huggingface"))),
        "accelerate",
        "default_config.yaml",
    )
    text = read(Path(cwd, file) if file else default)
    if text is not None:
        config = accelerate_config(text)
    elif file and not {"nnodes", "num_processes"} <= options.keys():
        notes.append(f"accelerate's configuration {file} is not here: its sizes are not known")
        known = False

    def value(option: str, default: str = "") -> str:
        return options.get(option) or config.get(option) or default

    nodes = _number(value("nnodes", "1"), 1) or 1
    total = _number(value("num_processes"), None)
    if total is None:
        total = (gpus or 1) * nodes
        if nodes > 1 and known:
            notes.append(
                f"accelerate launch has no --num_processes: {total} are assumed, all GPUs of all nodes"
            )
    node_rank: int | None = _number(value("node_rank", "0"), None)
    address = value("master_addr", "127.0.0.1")
    port = value("master_port", "29500")
    backend = value("rdzv_backend", "static")
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
        parsed.rest, next(iter(parsed.rest), ""), "module" in options, tuple(notes), known,
    )  # fmt: skip


def deepspeed(
    args: Sequence[str], env: Mapping[str, str], gpus: int, cwd: Path, read: ReadFile = text_of
) -> Agent:
    """The ``deepspeed`` command: it reaches the hosts of its host file itself, by ssh."""
    parsed = read_text("deepspeed", args)
    options, notes = parsed.options, _refused("deepspeed", parsed)
    slots: list[tuple[str, int]] = []
    file = options.get("hostfile", "/job/hostfile")
    text = read(Path(cwd, file))
    if text is not None:
        for line in text.splitlines():
            words = line.partition("#")[0].split()
            if words:
                count = next((word[6:] for word in words[1:] if word.startswith("slots=")), "")
                slots.append((words[0], _number(count, None) or gpus or 1))
    elif "hostfile" in options:
        notes.append(f"the host file {file} is not there: deepspeed uses this node alone")
    workers = _number(options.get("nproc_per_node", "-1"), None) or gpus or 1
    address, port = options.get("master_addr", ""), options.get("master_port", "29500")
    many = _number(options.get("nnodes", ""), None) or 0
    node_rank: int | None = 0
    if "no_ssh" in options:
        nodes, node_rank, slots = many or len(slots) or 1, _number(options.get("node_rank", ""), None), []
    else:
        slots = slots[: many or None]
        if "nproc_per_node" in options:
            slots = [(host, workers) for host, _ in slots]
        nodes = len(slots) or 1
        if many > nodes:
            notes.append(f"--num_nodes={many}, but the host file names {nodes}: deepspeed ends with an error")
    master = f"{address or (slots[0][0] if slots else '127.0.0.1')}:{port}"
    return Agent(
        "deepspeed", nodes, nodes, slots[0][1] if slots else workers, node_rank, master, "none", "static", master,
        parsed.rest, next(iter(parsed.rest), ""), "module" in options, tuple(notes), True,
        sum(count for _, count in slots) or None, tuple(slots),
    )  # fmt: skip


def horovodrun(args: Sequence[str]) -> Agent:
    parsed = read_text("horovodrun", args)
    total = _number(parsed.options.get("num_processes", "1"), 1) or 1
    slots = []
    for one in filter(None, parsed.options.get("hosts", "").split(",")):
        host, _, count = one.partition(":")
        slots.append((host, _number(count, 1) or 1))
    rest = parsed.rest
    target = next((word for word in rest if word.endswith(".py")), "")
    return Agent(
        "horovodrun", len(slots) or 1, 1, total, command=rest, target=target,
        notes=tuple(_refused("horovodrun", parsed)), world=total, slots=tuple(slots),
    )  # fmt: skip
