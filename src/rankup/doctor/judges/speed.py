"""The slow one: a link or a core that gives much less than the others give."""

from __future__ import annotations

import statistics
from collections.abc import Iterator

from rankup.doctor.facts import Facts
from rankup.doctor.judges.findings import finding
from rankup.findings.finding import Finding


def links(facts: Facts) -> Iterator[Finding]:
    """Nodes that send much less than the others do, or than their interface should."""
    rates = {
        node: statistics.median(part["sends"].values())
        for node, part in facts.parts("network").items()
        if part.get("sends")
    }
    if not rates:
        return
    limits = finding.limits["slow-link"]
    for node, rate in rates.items():
        others = [one for other, one in rates.items() if other != node]
        usual = statistics.median(others) if others else 0.0
        if rate < limits["of_median"] * usual and rate < limits["enough"]:
            yield finding("slow-link", facts.host(node), rate=_rate(rate), usual=_rate(usual))


def stragglers(facts: Facts) -> Iterator[Finding]:
    """Ranks whose cores somebody else uses. A process that does it must be visible, for a busy moment of the whole
    machine looks the same; unless the cluster hides the processes of others.
    """
    if len(facts.hosts) == 1 and not any((one.get("job") or {}).get("scheduler") for one in facts.ranks):
        return  # a laptop, or a login node: others work there as well
    slow = {
        (node, int(one["rank"])): float(one["slowdown"])
        for node, part in facts.parts("speed").items()
        for one in part.get("ranks", ())
    }
    if not slow:
        return
    usual = statistics.median_low(slow.values())
    for (node, rank), slowdown in slow.items():
        if slowdown < finding.limits["straggler"]["slowdown"]:
            continue
        affinity: list[int] = next(
            (one["affinity"] for one in facts.ranks_of.get(node, ()) if int(one["rank"]) == rank), []
        )
        thieves = [one for one in facts.part(node, "speed").get("busy", ()) if one["cpu"] in affinity]
        if thieves:
            by = f"{thieves[0]['name']} (pid {thieves[0]['pid']})"
        elif facts.part(node, "speed").get("hidden"):
            by = "a process that this cluster hides"
        else:
            continue
        yield finding("straggler", facts.host(node), rank=rank, by=by, slowdown=slowdown, usual=usual)


def _rate(rate: float) -> str:
    return f"{rate / 1e9:.1f} GB/s" if rate >= 1e9 else f"{rate / 1e6:,.0f} MB/s"
