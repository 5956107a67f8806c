"""Interfaces that variables name: gloo takes exact names, NCCL beginnings of names."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from rankup.doctor.facts import Facts
from rankup.doctor.judges.findings import finding
from rankup.doctor.judges.names import interface_with, variables
from rankup.doctor.probes.names import is_loopback
from rankup.findings.finding import Confidence, Finding, Severity


def judge(facts: Facts) -> Iterator[Finding]:
    grouped: dict[tuple[str, str, str], list[int]] = {}
    for node, part in facts.parts("names").items():
        if not part.get("interfaces"):
            continue
        for name, check in (("GLOO_SOCKET_IFNAME", _gloo), ("NCCL_SOCKET_IFNAME", _nccl)):
            value = variables(facts, node).get(name)
            if value and (problem := check(part, value, len(facts.hosts) > 1)):
                grouped.setdefault((name, value, problem), []).append(node)
    for (name, value, problem), nodes in grouped.items():
        part = facts.part(nodes[0], "names")
        right = next((found for one in part.get("routes", ()) if (found := interface_with(part, one))), None)
        elsewhere = problem == "has other addresses than those that lead to the peers"
        yield finding(
            "wrong-interface",
            facts.named(nodes),
            name=name,
            value=value,
            problem=problem,
            severity=Severity.WARNING if elsewhere else Severity.ERROR,
            confidence=Confidence.LIKELY if elsewhere else Confidence.SURE,
            fix=f"export {name}={right}" if right and right != value else f"unset {name}",
        )


def _gloo(part: Mapping[str, Any], value: str, several: bool) -> str:
    """What is wrong; empty if nothing is. A list separated by commas is legal."""
    interfaces = part["interfaces"]
    names = [name.strip() for name in value.split(",")]
    if unknown := [name for name in names if name not in interfaces]:
        return f"{unknown[0]} does not exist (gloo needs the whole name)"
    return _usable(part, names, several)


def _nccl(part: Mapping[str, Any], value: str, several: bool) -> str:
    interfaces, exclude = part["interfaces"], value.startswith("^")
    exact = value.lstrip("^").startswith("=")
    entries = [entry for entry in value.lstrip("^=").split(",") if entry]
    matched = [
        name
        for name in interfaces
        if any(name == entry if exact else name.startswith(entry) for entry in entries) != exclude
    ]
    if not matched:
        return "does not exist"
    # With a prefix or an exclusion NCCL chooses among several: wrong only if none of them is usable.
    problems = [_usable(part, [name], several) for name in matched]
    return "" if "" in problems else problems[0]


def _usable(part: Mapping[str, Any], names: list[str], several: bool) -> str:
    chosen = [part["interfaces"][name] for name in names]
    addresses = [address for one in chosen for address in one["addresses"]]
    if not all(one["up"] for one in chosen):
        return "is down"
    if not addresses:
        return "has no address"
    routes = [one for one in part.get("routes", ()) if not is_loopback(one)]
    if several and routes and all(map(is_loopback, addresses)):
        return "is the loopback interface"
    if several and routes and not set(routes) & set(addresses):
        return "has other addresses than those that lead to the peers"
    return ""
