"""What must be the same on all nodes, and their clocks."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from rankup.doctor.facts import Facts
from rankup.doctor.judges.findings import finding
from rankup.findings.finding import Confidence, Finding


def _of(part: str, name: str) -> Callable[[Facts, int], Any]:
    return lambda facts, node: facts.part(node, part).get(name)


def _minor(facts: Facts, node: int) -> Any:
    version = facts.part(node, "software").get("python")
    return ".".join(version.split(".")[:2]) if version else None


def _driver(facts: Facts, node: int) -> Any:
    gpus = facts.part(node, "gpus").get("gpus", ())
    return next((gpu["driver"] for gpu in gpus if gpu.get("driver")), None)


# Code → the value of a node that must be the same on all; roots first.
_MUST: Mapping[str, Callable[[Facts, int], Any]] = {
    "architecture-differs": _of("machine", "architecture"),
    "python-differs": _minor,
    "torch-differs": _of("software", "torch"),
    "cuda-differs": _of("software", "cuda"),
    "nccl-differs": _of("software", "nccl"),
    "script-differs": _of("software", "script"),
    "driver-differs": _driver,
}


def judge(facts: Facts) -> Iterator[Finding]:
    yield from _interpreters(facts)
    told: set[int] = set()
    for code, value_of in _MUST.items():
        groups = _groups(facts, value_of)
        if len(groups) < 2:
            continue
        minority = _minority(groups)
        if code in ("cuda-differs", "nccl-differs") and set(minority) <= told:
            continue  # they come with torch
        told |= set(minority)
        yield finding(code, facts.named(minority), values=_worded(facts, groups))
    yield from _variables(facts)
    yield from _login(facts)


def _interpreters(facts: Facts) -> Iterator[Finding]:
    broken = [node for node, part in facts.parts("software").items() if part.get("failed")]
    if broken:
        part = facts.part(broken[0], "software")
        yield finding(
            "python-fails", facts.named(broken), python=part.get("executable"), error=part["failed"]
        )
    unreadable = [
        node
        for node, part in facts.parts("software").items()
        if str(part.get("script") or "").startswith("unreadable")
    ]
    if unreadable:
        yield finding(
            "script-unreadable",
            facts.named(unreadable),
            error=facts.part(unreadable[0], "software")["script"],
        )
    lacking = [
        node for node, part in facts.parts("software").items() if part.get("python") and not part.get("torch")
    ]
    if lacking and len(lacking) == len(facts.parts("software")):
        yield finding("no-torch", python=facts.part(lacking[0], "software").get("executable"))


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
            yield finding("variable-differs", facts.named(minority), name=name, values=_worded(facts, groups))


def _variable(facts: Facts, node: int, name: str) -> Any:
    return facts.part(node, "software").get("variables", {}).get(name)


def _login(facts: Facts) -> Iterator[Finding]:
    here, there = facts.here.get("architecture"), facts.part(0, "machine").get("architecture")
    if here and there and here != there:
        yield finding("login-architecture", here=here, there=there)


def clocks(facts: Facts) -> Iterator[Finding]:
    """Clocks by the connections between agents, else by when their lines came."""
    ahead: dict[int, float] = {}
    for node, part in facts.nodes.items():
        offset = facts.part(node, "network").get("clock_offset")
        ahead[node] = -offset if offset is not None else -float(part.get("late", 0.0))
    if not ahead:
        return
    skew = finding.limits["clock-off"]["seconds_off"]
    late = [-float(part.get("late", 0.0)) for part in facts.nodes.values()]
    # Of two clocks that differ, the wrong one is that which differs from ours as well.
    for node, seconds in sorted(ahead.items()):
        own = -float(facts.nodes[node].get("late", 0.0))
        middle = statistics.median(late) if len(late) > 2 else 0.0
        off = own - middle
        if abs(off) > skew and abs(seconds) > skew:
            yield finding(
                "clock-off",
                facts.host(node),
                seconds=abs(off),
                direction="ahead" if off > 0 else "behind",
                confidence=Confidence.SURE if abs(off) > 2 * skew else Confidence.LIKELY,
            )
