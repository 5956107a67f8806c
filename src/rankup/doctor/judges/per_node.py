"""The same problem on several nodes is one finding: a fault of a whole job would fill the screen otherwise."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

from rankup.doctor.facts import Facts
from rankup.findings.finding import Finding


def merged(facts: Facts, found: Iterable[tuple[int, Finding]]) -> Iterator[Finding]:
    """Findings of single nodes, whose message says nothing of the host: equal ones become one that names all hosts."""
    nodes: dict[Finding, list[int]] = {}
    for node, finding in found:
        nodes.setdefault(finding, []).append(node)
    for finding, where in nodes.items():
        hosts = facts.named(where)
        yield replace(finding, message=f"{hosts}: {finding.message}", place=hosts)
