"""The findings of the judges: their words are in ``findings.toml``."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path

from rankup.doctor.facts import Facts
from rankup.findings.finding import Finding
from rankup.findings.table import FindingTable

finding = FindingTable(Path(__file__).with_suffix(".toml"))


def merged(facts: Facts, found: Iterable[tuple[int, Finding]]) -> Iterator[Finding]:
    """Findings of single nodes, whose message says nothing of the host: equal ones become one that names all hosts.

    A fault of a whole job would fill the screen otherwise.
    """
    nodes: dict[Finding, list[int]] = {}
    for node, one in found:
        nodes.setdefault(one, []).append(node)
    for one, where in nodes.items():
        hosts = facts.named(where)
        yield replace(one, message=f"{hosts}: {one.message}", place=hosts)
