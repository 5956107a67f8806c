"""GPUs that the driver does not give, or that report errors."""

from __future__ import annotations

from collections.abc import Iterator

from rankup.doctor.facts import Facts
from rankup.doctor.judges.findings import finding
from rankup.findings.finding import Finding


def judge(facts: Facts) -> Iterator[Finding]:
    states = facts.parts("gpus")
    for node, part in states.items():
        host = facts.host(node)
        if part.get("state") == "failed":
            answers = sum(bool(gpu.get("answers")) for gpu in part.get("gpus", ()))
            listed = len(part.get("gpus", ()))
            some = f"; {answers} of {listed} GPUs answer" if listed else ""
            yield finding("gpu-driver-failed", host, error=part.get("error", ""), some=some)
        for gpu in part.get("gpus", ()):
            if gpu.get("ecc_uncorrected"):
                yield finding("gpu-ecc", host, gpu=gpu["index"], errors=gpu["ecc_uncorrected"])
        if part.get("xid"):
            yield finding("gpu-xid", host, errors=", ".join(part["xid"][-3:]))
    yield from _differ(facts)


def _differ(facts: Facts) -> Iterator[Finding]:
    kinds: dict[str, list[int]] = {}
    for node, part in facts.parts("gpus").items():
        if part.get("state") != "failed":
            names = sorted(gpu["name"] for gpu in part.get("gpus", ()))
            kinds.setdefault(_counted(names), []).append(node)
    if len(kinds) > 1:
        words = "; ".join(f"{what} on {facts.named(nodes)}" for what, nodes in kinds.items())
        fewest = min(map(len, kinds.values()))
        least = sorted(node for nodes in kinds.values() if len(nodes) == fewest for node in nodes)
        yield finding("gpus-differ", facts.named(least), words=words)


def _counted(names: list[str]) -> str:
    return ", ".join(f"{names.count(name)} × {name}" for name in dict.fromkeys(names)) or "none"
