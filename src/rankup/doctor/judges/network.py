"""The port where ranks meet, and TCP between all pairs of nodes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from rankup.doctor.facts import Facts
from rankup.doctor.judges.findings import finding
from rankup.findings.finding import Finding
from rankup.world.ports import FIRST_PORT, LAST_PORT

_PORTS = f"{FIRST_PORT}–{LAST_PORT}"
_LISTED = 5  # pairs that are reported one by one
Pair = tuple[int, int]


def port(facts: Facts) -> Iterator[Finding]:
    for node, part in facts.parts("ports").items():
        if part.get("taken") == "in-use":
            holder = f" by {part['holder']}" if part.get("holder") else ""
            yield finding(
                "port-taken",
                facts.host(node),
                port=part["port"],
                holder=holder,
                ports=_PORTS,
            )
        elif part.get("taken") == "refused":
            yield finding(
                "port-refused",
                facts.host(node),
                port=part["port"],
                ports=_PORTS,
            )
        if len(facts.hosts) > 1:
            for one in part.get("open_to_all", ()):
                yield finding(
                    "listens-to-all", facts.host(node), name=one["name"], pid=one["pid"], port=one["port"]
                )


def pairs(facts: Facts) -> Iterator[Finding]:
    """Failed connections that neither a missing agent nor a wrong name explains, by their cause."""
    yield from _deaf(facts)
    failed = _failures(facts)
    if not failed:
        return
    for pair in [pair for pair, how in failed.items() if how["kind"] == "refused"]:
        if elsewhere := _elsewhere(facts, pair, failed[pair]):
            del failed[pair]
            yield elsewhere
    dead = _dead(facts, failed)
    for node in dead:
        yield finding(
            "link-down", facts.host(node), why=_kinds((how for pair, how in failed.items() if node in pair))
        )
    left = {pair: how for pair, how in failed.items() if not set(pair) & set(dead)}
    both = {pair for pair in left if pair[::-1] in left}
    for low, high in sorted({(min(pair), max(pair)) for pair in both})[:_LISTED]:
        yield finding(
            "link-down",
            facts.named((low, high)),
            message=f"no connection between {facts.host(low)} and {facts.host(high)}, in neither direction",
            why=_kinds([left[low, high], left[high, low]]),
            fix="on both: ip link, ip route; a firewall must let the job's nodes pass",
        )
    for pair in sorted(set(left) - both)[:_LISTED]:
        yield _one_way(facts, pair, left[pair])
    rest = len({frozenset(pair) for pair in left}) - 2 * _LISTED
    if rest > 0:
        nodes = sorted({node for pair in left for node in pair})
        yield finding("links-down", facts.named(nodes), pairs=len(left))


def _deaf(facts: Facts) -> Iterator[Finding]:
    for node, part in facts.parts("network").items():
        if part.get("listening") is False:
            host = facts.host(node)
            addresses = ", ".join(part.get("addresses") or ())
            said = f"{host} cannot listen on {addresses}: {part.get('problem', '')}" if addresses else ""
            yield finding("cannot-listen", host, message=said)


def _failures(facts: Facts) -> dict[Pair, dict[str, Any]]:
    """(from, to) → how it failed, of pairs that should have worked."""
    found: dict[Pair, dict[str, Any]] = {}
    for node, part in facts.parts("network").items():
        names = facts.part(node, "names")
        wrong = {*names.get("unresolved", ()), *names.get("loopback", ())}
        for how in part.get("failed", ()):
            peer = how["peer"]
            listening = facts.part(peer, "network").get("listening")
            if peer in facts.silent or facts.host(peer) in wrong or how["kind"] == "unknown-name":
                continue
            if listening is False or "network" not in facts.nodes.get(peer, {}):
                continue  # its own problem, reported as such
            found[node, peer] = how
    return found


def _dead(facts: Facts, failed: Mapping[Pair, Any]) -> list[int]:
    """Nodes without any working connection, of three or more; of two nobody can say whose link it is."""
    alive = [node for node in sorted(facts.nodes) if facts.part(node, "network")]
    if len(alive) < 3:
        return []
    dead = [
        node
        for node in alive
        if all((node, peer) in failed and (peer, node) in failed for peer in alive if peer != node)
    ]
    return [] if len(dead) == len(alive) else dead


def _one_way(facts: Facts, pair: Pair, how: Mapping[str, Any]) -> Finding:
    sender, receiver = facts.host(pair[0]), facts.host(pair[1])
    where = f"{how.get('address', '')} port {how.get('port', '?')}"
    return finding(
        "port-blocked",
        receiver,
        sender=sender,
        where=where,
        problem=_WORDS.get(how["kind"], how["kind"]),
        ports=_PORTS,
    )


def _elsewhere(facts: Facts, pair: Pair, how: Mapping[str, Any]) -> Finding | None:
    """The name leads to another address of the peer than packets to its peers leave from."""
    listens = facts.part(pair[1], "network").get("addresses", ())
    if not listens or how.get("address") in listens:
        return None
    peer, node = facts.host(pair[1]), facts.host(pair[0])
    return finding(
        "name-and-route-differ", peer, node=node, address=how.get("address"), listens=", ".join(listens)
    )


_WORDS = {
    "timeout": "no answer",
    "refused": "refused",
    "unreachable": "no route",
    "reset": "reset",
    "stranger": "another program answers",
}


def _kinds(hows: Any) -> str:
    kinds = sorted({_WORDS.get(how["kind"], how["kind"]) for how in hows})
    return f"connections: {', '.join(kinds)}"
