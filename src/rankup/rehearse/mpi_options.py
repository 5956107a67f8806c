"""The command lines of mpirun and mpiexec: Open MPI, Hydra (MPICH, Intel MPI), PALS (HPE Cray). Pure functions."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from rankup.launch_grammar.dialects import FAMILIES, families_of
from rankup.launch_grammar.reader import Given, Text, read_text


@dataclass
class MpiOptions:
    """What a command line says."""

    ranks: int | None = None
    per_node: int | None = None
    host_file: str = ""
    hosts: tuple[tuple[str, int | None], ...] = ()
    round_robin: bool = False
    depth: int | None = None  # CPUs of a rank
    oversubscribe: bool = False
    handed_on: list[str] = field(default_factory=list)  # VAR or VAR=value
    handed_on_all: bool | None = None
    folder: str = ""
    remote_shell: bool = False
    command: list[str] = field(default_factory=list)
    problem: str = ""
    notes: list[str] = field(default_factory=list)


def parse(kind: str, words: Sequence[str], read_file: Callable[[str], str | None]) -> MpiOptions:
    """``kind``: openmpi, hydra or pals. ``read_file`` gives the text of a host file, or None."""
    parsed, line = MpiOptions(), read_text(kind, words)
    if line.unknown and (theirs := families_of(words)):
        names = " or ".join(FAMILIES[family] for family in theirs)
        parsed.problem = (
            f"{line.unknown[0]} is not an option of {FAMILIES[kind]}, but of {names}: "
            f"rehearse with --mpi {theirs[0]}"
        )
        return parsed
    parsed.notes += [f"the rehearsal does not know {word}; left out" for word in line.unknown]
    if line.problem:
        parsed.problem = line.problem
        return parsed
    for one in line.given:
        _take(one, parsed)
    parsed.command = list(line.rest)
    if ":" in parsed.command:
        parsed.notes.append("several programs, separated by ':': only the first is rehearsed")
        parsed.command = parsed.command[: parsed.command.index(":")]
    if parsed.host_file:
        lines = read_file(parsed.host_file)
        if lines is None:
            parsed.problem = f"the host file {parsed.host_file} cannot be read"
        else:
            parsed.hosts = _host_lines(lines)
    return parsed


def _take(one: Given[Text], parsed: MpiOptions) -> None:
    value = one.value
    match one.option.meaning:
        case "np":
            parsed.ranks = _whole(value, one.spelling, parsed)
        case "ppn":
            parsed.per_node = _whole(value, one.spelling, parsed)
        case "pernode" | "rr":
            parsed.per_node = 1
        case "depth":
            parsed.depth = _whole(value, one.spelling, parsed)
        case "hostfile":
            parsed.host_file = value
        case "hosts":
            parsed.hosts = _host_words(value)
        case "map-by":
            _map_by(value, parsed)
        case "bynode":
            parsed.round_robin = True
        case "oversubscribe":
            parsed.oversubscribe = True
        case "env":
            parsed.handed_on.append("=".join(one.values))
        case "envlist":
            parsed.handed_on += [name for name in value.split(",") if name]
        case "envall":
            parsed.handed_on_all = True
        case "envnone":
            parsed.handed_on_all = False
        case "wdir":
            parsed.folder = value
        case "mca":
            name, setting = one.values[0], one.value
            parsed.remote_shell |= (name, setting) == ("plm", "rsh") or name == "plm_rsh_agent"


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
