"""What must be the same on all nodes, and their clocks."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from rankup.doctor.facts import Facts
from rankup.findings.finding import Confidence, Finding, Severity

_SKEW = 5.0  # seconds


def _of(part: str, name: str) -> Callable[[Facts, int], Any]:
    return lambda facts, node: facts.part(node, part).get(name)


def _minor(facts: Facts, node: int) -> Any:
    version = facts.part(node, "software").get("python")
    return ".".join(version.split(".")[:2]) if version else None


def _driver(facts: Facts, node: int) -> Any:
    gpus = facts.part(node, "gpus").get("gpus", ())
    return next((gpu["driver"] for gpu in gpus if gpu.get("driver")), None)


_SAME_ENVIRONMENT = "use the same environment on all nodes, in a directory that all see"
# (code, what it is, its value of a node, severity, what follows, what to do), roots first
_MUST: tuple[tuple[str, str, Callable[[Facts, int], Any], Severity, str, str], ...] = (
    ("architecture-differs", "architecture", _of("machine", "architecture"), Severity.ERROR,
     "compiled packages of one do not run on the other", "ask for one kind of node (--constraint)"),
    ("python-differs", "Python", _minor, Severity.ERROR,
     "packages are another set, and pickled objects may not be read", _SAME_ENVIRONMENT),
    ("torch-differs", "torch", _of("software", "torch"), Severity.ERROR,
     "another version may not connect, or compute other numbers", _SAME_ENVIRONMENT),
    ("cuda-differs", "CUDA of torch", _of("software", "cuda"), Severity.ERROR,
     "kernels and libraries differ", _SAME_ENVIRONMENT),
    ("nccl-differs", "NCCL", _of("software", "nccl"), Severity.ERROR,
     "NCCL of another version does not connect", _SAME_ENVIRONMENT),
    ("script-differs", "the script", _of("software", "script"), Severity.ERROR,
     "ranks would run different programs", "put it in a directory that all nodes share"),
    ("driver-differs", "the NVIDIA driver", _driver, Severity.WARNING,
     "nodes may be slower, or lack what a kernel needs", "report it, or ask for one kind of node"),
)  # fmt: skip


def judge(facts: Facts) -> Iterator[Finding]:
    yield from _interpreters(facts)
    told: set[int] = set()
    for code, what, value_of, severity, why, fix in _MUST:
        groups = _groups(facts, value_of)
        if len(groups) < 2:
            continue
        minority = _minority(groups)
        if code in ("cuda-differs", "nccl-differs") and set(minority) <= told:
            continue  # they come with torch
        told |= set(minority)
        yield Finding(
            code,
            severity,
            f"{what} differs between nodes: {_worded(facts, groups)}",
            place=facts.named(minority),
            why=why,
            fix=fix,
        )
    yield from _variables(facts)
    yield from _login(facts)


def _interpreters(facts: Facts) -> Iterator[Finding]:
    broken = [node for node, part in facts.parts("software").items() if part.get("failed")]
    if broken:
        part = facts.part(broken[0], "software")
        yield Finding(
            "python-fails",
            Severity.ERROR,
            f"{part.get('executable')} does not run on {facts.named(broken)}: {part['failed']}",
            place=facts.named(broken),
            fix="install the environment in a directory that all nodes see, for their architecture",
        )
    unreadable = [
        node
        for node, part in facts.parts("software").items()
        if str(part.get("script") or "").startswith("unreadable")
    ]
    if unreadable:
        yield Finding(
            "script-unreadable",
            Severity.ERROR,
            f"{facts.named(unreadable)} cannot read the script: {facts.part(unreadable[0], 'software')['script']}",
            place=facts.named(unreadable),
            fix="put it in a directory that all nodes share",
        )
    lacking = [
        node for node, part in facts.parts("software").items() if part.get("python") and not part.get("torch")
    ]
    if lacking and len(lacking) == len(facts.parts("software")):
        yield Finding(
            "no-torch",
            Severity.NOTE,
            f"{facts.part(lacking[0], 'software').get('executable')} has no torch: all-reduce and matrix products "
            "were not tried",
            fix="--python PATH names the job's interpreter",
        )


def _groups(facts: Facts, value_of: Callable[[Facts, int], Any]) -> dict[Any, list[int]]:
    """Value → nodes, of those that told one. A node whose interpreter has no torch has the value None."""
    found: dict[Any, list[int]] = {}
    for node in sorted(facts.nodes):
        if facts.part(node, "software").get("failed") or not facts.part(node, "software"):
            continue
        value = value_of(facts, node)
        if str(value).startswith("unreadable"):
            continue
        found.setdefault(value, []).append(node)
    return found


def _minority(groups: Mapping[Any, list[int]]) -> list[int]:
    """All nodes but those of the largest group; where two are equal, the first node's group is right."""
    most = max(groups.values(), key=lambda nodes: (len(nodes), -nodes[0]))
    return sorted(node for nodes in groups.values() if nodes is not most for node in nodes)


def _worded(facts: Facts, groups: Mapping[Any, list[int]]) -> str:
    ordered = sorted(groups.items(), key=lambda item: (-len(item[1]), item[1][0]))
    return ", ".join(f"{value or 'none'} on {facts.named(nodes)}" for value, nodes in ordered)


def _variables(facts: Facts) -> Iterator[Finding]:
    names = {name for part in facts.parts("software").values() for name in part.get("variables", {})}
    for name in sorted(names):
        groups = _groups(facts, lambda facts, node, name=name: _variable(facts, node, name))  # type: ignore[misc]
        if len(groups) > 1:
            minority = _minority(groups)
            yield Finding(
                "variable-differs",
                Severity.WARNING,
                f"{name} differs between nodes: {_worded(facts, groups)}",
                place=facts.named(minority),
                why="a shell's start-up file of that host may set it",
                fix=f"export {name} in the job script, for all nodes",
            )


def _variable(facts: Facts, node: int, name: str) -> Any:
    return facts.part(node, "software").get("variables", {}).get(name)


def _login(facts: Facts) -> Iterator[Finding]:
    here, there = facts.here.get("architecture"), facts.part(0, "machine").get("architecture")
    if here and there and here != there:
        yield Finding(
            "login-architecture",
            Severity.WARNING,
            f"this machine is {here}, the nodes are {there}",
            why="what is installed or compiled here does not run there",
            fix="build environments in a job (rankup env create)",
        )


def clocks(facts: Facts) -> Iterator[Finding]:
    """Clocks by the connections between agents, else by when their lines came."""
    ahead: dict[int, float] = {}
    for node, part in facts.nodes.items():
        offset = facts.part(node, "network").get("clock_offset")
        ahead[node] = -offset if offset is not None else -float(part.get("late", 0.0))
    if not ahead:
        return
    late = [-float(part.get("late", 0.0)) for part in facts.nodes.values()]
    # Of two clocks that differ, the wrong one is that which differs from ours as well.
    for node, seconds in sorted(ahead.items()):
        own = -float(facts.nodes[node].get("late", 0.0))
        middle = statistics.median(late) if len(late) > 2 else 0.0
        off = own - middle
        if abs(off) > _SKEW and abs(seconds) > _SKEW:
            yield Finding(
                "clock-off",
                Severity.WARNING,
                f"the clock of {facts.host(node)} is {abs(off):.0f} s {'ahead' if off > 0 else 'behind'}",
                place=facts.host(node),
                why="files seem to come from the future, time limits and logs are wrong, credentials expire",
                fix=f"report it: chronyc tracking on {facts.host(node)}",
                confidence=Confidence.SURE if abs(off) > 2 * _SKEW else Confidence.LIKELY,
            )
