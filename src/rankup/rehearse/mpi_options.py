"""The command lines of mpirun and mpiexec: Open MPI, Hydra (MPICH, Intel MPI), PALS (HPE Cray). Pure functions."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field


@dataclass
class MpiOptions:
    """What a command line says."""

    ranks: int | None = None
    per_node: int | None = None
    host_file: str = ""
    hosts: tuple[tuple[str, int | None], ...] = ()
    round_robin: bool = False
    depth: int | None = None  # CPUs of a rank
    binds: bool = True
    oversubscribe: bool = False
    handed_on: list[str] = field(default_factory=list)  # VAR or VAR=value
    handed_on_all: bool | None = None
    folder: str = ""
    remote_shell: bool = False
    command: list[str] = field(default_factory=list)
    problem: str = ""
    notes: list[str] = field(default_factory=list)


_OPENMPI_VALUES = frozenset(
    ["x", "wdir", "wd", "path", "prefix", "bind-to", "rank-by", "output-filename", "report-uri", "stdin",
    "timeout", "cpu-list", "cpu-set", "app", "tune", "rankfile", "rf", "dvm-uri", "display",
    "merge-stderr-to-stdout-file", "personality", "output", "oversubscribe-with", "preload-files",
    "server-wait-time", "slot-list", "with-ft", "am", "xterm", "launch-agent", "cpus-per-proc", "cpus-per-rank",
    "ompi-server", "max-restarts", "default-hostfile", "pset", "runtime-options"]
)  # fmt: skip
_OPENMPI_TWO = frozenset({"mca", "gmca", "pmixmca", "prtemca", "omca"})
_HYDRA_VALUES = frozenset(
    ["wdir", "path", "bootstrap", "bootstrap-exec", "bootstrap-exec-args", "iface", "rmk", "launcher",
    "launcher-exec", "env-list", "genvlist", "envlist", "bind-to", "map-by", "prepend-pattern",
    "print-rank-map-file", "configfile", "outfile-pattern", "errfile-pattern", "branch-count", "pmi-port",
    "tmpdir", "membind", "binding", "order-nodes", "gpu-bind", "timeout", "gpus-per-proc",
    "ordered-output-file", "pmi_args", "ckpoint-interval", "demux"]
)  # fmt: skip
_PALS_VALUES = frozenset(
    [
        "cpu-bind",
        "mem-bind",
        "gpu-bind",
        "wdir",
        "line-buffer-size",
        "tmpdir",
        "umask",
        "pmi",
        "label-width",
        "procinfo-file",
        "rlimits",
        "transfer-file",
        "configfile",
        "exclusive-label",
        "stdin-target",
        "network",
        "fork-limit",
        "sstartup",
        "cc",
    ]
)


def parse(kind: str, words: Sequence[str], read_file: Callable[[str], str | None]) -> MpiOptions:
    """``kind``: openmpi, hydra or pals. ``read_file`` gives the text of a host file, or None."""
    parsed, rest = MpiOptions(), list(words)
    values = {"openmpi": _OPENMPI_VALUES, "hydra": _HYDRA_VALUES, "pals": _PALS_VALUES}[kind]
    while rest:
        word = rest.pop(0)
        if word == "--":
            break
        if not word.startswith("-") or word == "-":
            rest.insert(0, word)
            break
        name, equals, value = word.lstrip("-").partition("=")

        def given(value: str = value, equals: str = equals) -> str:
            return value if equals else (rest.pop(0) if rest else "")

        if name in ("n", "np") or (name == "c" and kind == "openmpi"):
            parsed.ranks = _whole(given(), word, parsed)
        elif name in ("ppn", "npernode", "perhost", "N", "ranks-per-node", "tasks-per-node", "grr", "rr"):
            parsed.per_node = 1 if name in ("rr",) else _whole(given(), word, parsed)
        elif name == "pernode":
            parsed.per_node = 1
        elif name in ("hostfile", "machinefile", "f", "machine"):
            parsed.host_file = given()
        elif name in ("H", "host", "hosts", "hostlist"):
            parsed.hosts = _host_words(given())
        elif name == "map-by" and kind == "openmpi":
            _map_by(given(), parsed)
        elif name in ("bynode",):
            parsed.round_robin = True
        elif name in ("d", "depth") and kind == "pals":
            parsed.depth = _whole(given(), word, parsed)
        elif name == "x" and kind == "openmpi":
            parsed.handed_on.append(given())
        elif name in ("genv", "env", "e", "E") and kind != "openmpi":
            first = given()
            parsed.handed_on.append(
                first
                if "=" in first
                else f"{first}={rest.pop(0) if rest else ''}"
                if kind == "hydra"
                else first
            )
        elif name in ("genvall", "envall"):
            parsed.handed_on_all = True
        elif name in ("genvnone", "envnone"):
            parsed.handed_on_all = False
        elif name in ("genvlist", "envlist"):
            parsed.handed_on += [one for one in given().split(",") if one]
        elif name in ("wdir", "wd"):
            parsed.folder = given()
        elif name == "oversubscribe":
            parsed.oversubscribe = True
        elif kind == "openmpi" and name in _OPENMPI_TWO:
            key = given()
            setting = rest.pop(0) if rest else ""
            parsed.remote_shell = (
                parsed.remote_shell or (key, setting) == ("plm", "rsh") or key == "plm_rsh_agent"
            )
        elif name in values:
            text = given()
            parsed.binds = parsed.binds and not (name == "bind-to" and text == "none")
        elif kind == "openmpi" and name in ("cpu-bind", "gpu-bind", "mem-bind", "depth"):
            parsed.problem = (
                f"{word} is an option of PALS (HPE Cray), not of Open MPI: rehearse with --mpi pals"
            )
            return parsed
        elif kind == "pals" and word.startswith("-") and _looks_like_openmpi(name):
            parsed.problem = f"mpiexec: unrecognized option '{word}'"
            return parsed
    for index, word in enumerate(rest):
        if word == ":":
            parsed.notes.append("several programs, separated by ':': only the first is rehearsed")
            rest = rest[:index]
            break
    parsed.command = rest
    if parsed.host_file:
        lines = read_file(parsed.host_file)
        if lines is None:
            parsed.problem = f"the host file {parsed.host_file} cannot be read"
        else:
            parsed.hosts = _host_lines(lines)
    return parsed


def _looks_like_openmpi(name: str) -> bool:
    return name in ("map-by", "bind-to", "report-bindings", "mca", "x", "oversubscribe")


def _whole(text: str, word: str, parsed: MpiOptions) -> int | None:
    if re.fullmatch(r"\d+", text):
        return int(text)
    parsed.problem = f"{word} needs a number, and is given {text!r}"
    return None


def _map_by(text: str, parsed: MpiOptions) -> None:
    parts = text.split(":")
    if parts[0] == "ppr" and len(parts) > 2:
        if parts[2] in ("node", "host"):
            parsed.per_node = _whole(parts[1], "--map-by ppr", parsed)
        else:
            parsed.notes.append(f"--map-by {text}: how many {parts[2]}s a node has is not known")
    elif parts[0] == "node":
        parsed.round_robin = True
    for part in parts[1:]:
        for modifier in part.split(","):
            if modifier.upper().startswith("PE=") and modifier[3:].isdigit():
                parsed.depth = int(modifier[3:])
            parsed.oversubscribe = parsed.oversubscribe or modifier.upper() == "OVERSUBSCRIBE"


def _host_words(text: str) -> tuple[tuple[str, int | None], ...]:
    found = []
    for one in filter(None, text.split(",")):
        host, _, slots = one.partition(":")
        found.append((host, int(slots) if slots.isdigit() else None))
    return tuple(found)


def _host_lines(text: str) -> tuple[tuple[str, int | None], ...]:
    """``node1 slots=4``, ``node1:4``, or a line for each slot."""
    found: dict[str, int | None] = {}
    for line in text.splitlines():
        words = line.partition("#")[0].split()
        if not words:
            continue
        host, _, count = words[0].partition(":")
        slots = next(
            (word.partition("=")[2] for word in words[1:] if word.startswith(("slots=", "max_slots="))), count
        )
        if slots.isdigit():
            found[host] = (found.get(host) or 0) + int(slots)
        else:
            found[host] = (found.get(host) or 0) + 1
    return tuple(found.items())


def place(options: MpiOptions, slots: Mapping[str, int], kind: str) -> tuple[list[tuple[str, int]], str]:
    """(host, local rank) of each rank, and an error. ``slots``: host → ranks that the scheduler or a file gives it."""
    hosts = list(slots)
    total = options.ranks
    if options.per_node:
        most = options.per_node * len(hosts)
        if total is None:
            total = most
        if total > most and kind == "openmpi":
            return [], f"{total} processes are more than {options.per_node} on each of {len(hosts)} nodes"
        room = dict.fromkeys(hosts, options.per_node)
    else:
        total = sum(slots.values()) if total is None else total
        room = dict(slots)
        if kind == "pals" and total:
            room = dict.fromkeys(hosts, -(-total // len(hosts)))
        if total > sum(room.values()):
            if kind == "openmpi" and not options.oversubscribe:
                return (
                    [],
                    f"not enough slots: {total} processes, and {sum(room.values())} slots on {len(hosts)} nodes",
                )
            room = dict.fromkeys(hosts, -(-total // len(hosts)))
    placed: list[tuple[str, int]] = []
    used = dict.fromkeys(hosts, 0)
    while len(placed) < total:
        before = len(placed)
        for host in hosts:
            take = 1 if options.round_robin else room[host] - used[host]
            for _ in range(min(take, room[host] - used[host], total - len(placed))):
                placed.append((host, used[host]))
                used[host] += 1
        if len(placed) == before:  # PPR with more ranks than fit: PALS and Hydra go round again
            room = {host: count + (options.per_node or 1) for host, count in room.items()}
    return placed, ""
