"""Names: what torch resolves before it connects."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from rankup.doctor.facts import Facts
from rankup.doctor.judges.findings import finding
from rankup.doctor.probes.names import is_loopback
from rankup.findings.finding import Finding


def judge(facts: Facts) -> Iterator[Finding]:
    if len(facts.hosts) < 2:
        return
    wrong: dict[tuple[str, str], list[int]] = {}  # (kind, host) → the nodes that resolve it so
    for node, part in facts.parts("names").items():
        for kind in ("unresolved", "loopback"):
            for host in part.get(kind, ()):
                if not is_loopback(host) and host != "localhost":
                    wrong.setdefault((kind, host), []).append(node)
    for (kind, host), nodes in wrong.items():
        there = facts.named(nodes)
        if kind == "loopback":
            yield finding("name-is-loopback", there, host=host)
        else:
            yield finding("name-unknown", there, host=host)
    yield from _own_names(facts)


def _own_names(facts: Facts) -> Iterator[Finding]:
    """gloo takes the address of the machine's own name, unless it is told an interface."""
    found: list[int] = []
    routes = ""
    for node, part in facts.parts("names").items():
        own = part.get("own", ())
        told = variables(facts, node).get("GLOO_SOCKET_IFNAME")
        if own and all(map(is_loopback, own)) and part.get("routes") and not told:
            if all(map(is_loopback, part["routes"])):
                continue  # several nodes on one machine
            found.append(node)
            routes = routes or interface_with(part, part["routes"][0]) or ""
    if found:
        yield finding("own-name-is-loopback", facts.named(found), interface=routes or "INTERFACE")


def variables(facts: Facts, node: int) -> Mapping[str, str]:
    found: Mapping[str, str] = facts.part(node, "software").get("variables", {})
    return found


def interface_with(part: Mapping[str, Any], address: str) -> str | None:
    """The interface of a node that has ``address``."""
    found: Mapping[str, Any] = part.get("interfaces", {})
    return next((name for name, one in found.items() if address in one["addresses"]), None)
