"""Who is missing: nodes from which nothing came, tasks that did not take part, probes that did not end."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from rankup.doctor.facts import Facts, ranks_named
from rankup.doctor.judges.findings import finding
from rankup.findings.finding import Finding, Severity

# What a node launcher prints when it could not start an agent: text → (why, fix).
_SIGNATURES: tuple[tuple[str, str, str], ...] = (
    (r"Exec format error", "the program is built for another architecture",
     "build the environment on the compute nodes' architecture (rankup env create)"),
    (r"(No such file or directory|not found).*python|python.*(No such file or directory|not found)|execve\(\): \S*"
     r"python\S*: No such file", "this Python does not exist there",
     "install the environment in a directory that all nodes see"),
    (r"No module named '?rankup", "rankup is not installed there",
     "install the environment in a directory that all nodes see"),
    (r"Permission denied", "the node launcher was refused",
     "try the command by hand: srun -w HOST true, ssh HOST true"),
    (r"Host key verification failed|Could not resolve hostname", "ssh does not reach the host",
     "try the command by hand: ssh HOST true"),
)  # fmt: skip


def agents(facts: Facts) -> Iterator[Finding]:
    """Hosts that said nothing. Whether their network answers was seen by the others, who tried to reach them."""
    silent = sorted(facts.silent)
    if not silent:
        return
    seconds = facts.launch.get("seconds", 0)
    why, fix = _said(facts.launch.get("noise", ()))
    if len(silent) == len(facts.hosts):
        yield finding(
            "no-agents",
            hosts=facts.named(silent),
            seconds=seconds,
            why=why,
            fix=fix,
        )
        return
    dark = [node for node in silent if _unreachable(facts, node)]
    if dark:
        yield finding("host-unreachable", facts.named(dark), host=facts.host(dark[0]))
    if missing := [node for node in silent if node not in dark]:
        yield finding(
            "agent-missing",
            facts.named(missing),
            seconds=seconds,
            why=why,
            fix=fix,
            host=facts.host(missing[0]),
        )


def _unreachable(facts: Facts, node: int) -> bool:
    """Nobody who tried to connect to it got any answer, not even a refusal."""
    tries = [
        failed["kind"]
        for part in facts.parts("network").values()
        for failed in part.get("failed", ())
        if failed["peer"] == node
    ]
    return bool(tries) and all(kind in ("timeout", "unreachable") for kind in tries)


def _said(noise: Sequence[str]) -> tuple[str, str]:
    for pattern, why, fix in _SIGNATURES:
        for line in noise:
            if re.search(pattern, line):
                return f"{why}: {line[:200]}", fix
    errors = [line for line in noise if re.search(r"error|failed|refused|denied", line, re.I)]
    return (f"the node launcher printed: {errors[0][:200]}", "") if errors else ("", "")


def tasks(facts: Facts) -> Iterator[Finding]:
    """Tasks that a launcher should have started, by host."""
    numbers = [int(one["rank"]) for one in facts.ranks]
    sizes = {int(one["world_size"]) for one in facts.ranks}
    if len(sizes) > 1:
        yield finding("world-sizes-differ", sizes=", ".join(map(str, sorted(sizes))))
        return
    doubled = sorted({number for number in numbers if numbers.count(number) > 1}) if _doubles(numbers) else []
    if doubled:
        where = sorted({one["node"] for one in facts.ranks if int(one["rank"]) in doubled})
        yield finding("rank-doubled", facts.named(where), ranks=ranks_named(doubled))
    for node in sorted(facts.nodes):
        here = facts.ranks_of.get(node, [])
        expected = facts.counts[node] if node < len(facts.counts) else 0
        if len(here) < expected and "end" in facts.nodes[node]:
            number = expected - len(here)
            local = sorted(set(range(expected)) - {int(one["local_rank"]) for one in here})
            yield finding(
                "rank-missing", facts.host(node), number=number, expected=expected, ranks=ranks_named(local)
            )
    yield from _singletons(facts)


def _doubles(numbers: Sequence[int]) -> bool:
    return len(set(numbers)) < len(numbers)


def _singletons(facts: Facts) -> Iterator[Finding]:
    alone = [one for one in facts.ranks if one.get("pmi") and int(one["world_size"]) == 1]
    if len(alone) > 1 or any((one.get("job") or {}).get("tasks", "1") not in ("1", None) for one in alone):
        nodes = [one["node"] for one in alone]
        yield finding("mpi-singletons", facts.named(nodes), tasks=len(alone))


def unfinished(facts: Facts) -> Iterator[Finding]:
    """Agents that have started, and probes that hang: file systems and drivers that do not answer."""
    cut = [node for node in sorted(facts.nodes) if "end" not in facts.nodes[node]]
    if cut:
        yield finding("agent-lost", facts.named(cut), seconds=facts.launch.get("seconds", 0))
    hanging: dict[str, list[int]] = {}
    for node, parts in sorted(facts.nodes.items()):
        for name in (parts.get("end") or {}).get("unfinished", ()):
            hanging.setdefault(name, []).append(node)
    for name, nodes in hanging.items():
        fix = {
            "shared": "the file system hangs: try ls on the host, and report it",
            "gpus": "the driver hangs: try nvidia-smi on the host, and report it",
            "ranks": "the driver hangs: try nvidia-smi on the host, and report it",
            "names": "the name server does not answer: try getent hosts NAME on the host",
        }.get(name, "--timeout waits longer")
        yield finding(
            "probe-unfinished",
            facts.named(nodes),
            name=name,
            severity=Severity.NOTE if name in ("network", "speed") else Severity.WARNING,
            fix=fix,
        )
    for node, parts in sorted(facts.nodes.items()):
        for name, part in parts.items():
            if isinstance(part, dict) and "probe_error" in part:
                yield finding("probe-failed", facts.host(node), name=name, error=part["probe_error"])
