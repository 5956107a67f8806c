"""The port where ranks meet, and TCP between all pairs of nodes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from rankup.doctor.facts import Facts
from rankup.findings.finding import Confidence, Finding, Severity
from rankup.world.ports import FIRST_PORT, LAST_PORT

_LISTED = 5  # pairs that are reported one by one
Pair = tuple[int, int]


def port(facts: Facts) -> Iterator[Finding]:
    for node, part in facts.parts("ports").items():
        if part.get("taken") == "in-use":
            holder = f" by {part['holder']}" if part.get("holder") else ""
            yield Finding(
                "port-taken",
                Severity.ERROR,
                f"port {part['port']} on {facts.host(node)} is taken{holder}",
                place=facts.host(node),
                why="rank 0 will listen there, and fails with EADDRINUSE",
                fix=f"end that process, or export another MASTER_PORT from {FIRST_PORT} to {LAST_PORT}",
            )
        elif part.get("taken") == "refused":
            yield Finding(
                "port-refused",
                Severity.ERROR,
                f"port {part['port']} on {facts.host(node)} may be used by root alone",
                place=facts.host(node),
                fix=f"export MASTER_PORT from {FIRST_PORT} to {LAST_PORT}",
            )
        if len(facts.hosts) > 1:
            for one in part.get("open_to_all", ()):
                yield Finding(
                    "listens-to-all",
                    Severity.NOTE,
                    f"{one['name']} (pid {one['pid']}) of yours listens on all interfaces of {facts.host(node)}, "
                    f"port {one['port']}",
                    place=facts.host(node),
                    why="torch's store does so and has no password; it may be left over from an earlier run",
                    fix=f"if no run of yours is going on there: kill {one['pid']}",
                )


def pairs(facts: Facts) -> Iterator[Finding]:
    """Failed connections that neither a missing agent nor a wrong name explains, by their cause."""
    yield from _deaf(facts)
    failed = _failures(facts)
    if not failed:
        return
    for pair in [pair for pair, how in failed.items() if how["kind"] == "refused"]:
        if finding := _elsewhere(facts, pair, failed[pair]):
            del failed[pair]
            yield finding
    dead = _dead(facts, failed)
    for node in dead:
        yield Finding(
            "link-down",
            Severity.ERROR,
            f"{facts.host(node)} has no connection to any other node, although its agent runs",
            place=facts.host(node),
            why=_kinds(how for pair, how in failed.items() if node in pair),
            fix=f"on {facts.host(node)}: ip link, ip route; a firewall must let the job's nodes pass. "
            f"Or exclude it: sbatch --exclude={facts.host(node)}",
        )
    left = {pair: how for pair, how in failed.items() if not set(pair) & set(dead)}
    both = {pair for pair in left if pair[::-1] in left}
    for low, high in sorted({(min(pair), max(pair)) for pair in both})[:_LISTED]:
        yield Finding(
            "link-down",
            Severity.ERROR,
            f"no connection between {facts.host(low)} and {facts.host(high)}, in neither direction",
            place=facts.named((low, high)),
            why=_kinds([left[low, high], left[high, low]]),
            fix="on both: ip link, ip route; a firewall must let the job's nodes pass",
            confidence=Confidence.SURE,
        )
    for pair in sorted(set(left) - both)[:_LISTED]:
        yield _one_way(facts, pair, left[pair])
    rest = len({frozenset(pair) for pair in left}) - 2 * _LISTED
    if rest > 0:
        nodes = sorted({node for pair in left for node in pair})
        yield Finding(
            "links-down",
            Severity.ERROR,
            f"{len(left)} connections failed in all, between {facts.named(nodes)}",
            place=facts.named(nodes),
            fix="report it: this is the network, not the job",
        )


def _deaf(facts: Facts) -> Iterator[Finding]:
    for node, part in facts.parts("network").items():
        if part.get("listening") is False:
            host = facts.host(node)
            yield Finding(
                "cannot-listen",
                Severity.ERROR,
                f"{host} cannot listen on {', '.join(part['addresses'])}: {part.get('problem', '')}"
                if part.get("addresses")
                else f"{host} has no route to any other node",
                place=host,
                why="no rank there can take part",
                fix=f"on {host}: ip address, ip route; ss -ltn shows who listens",
            )


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
    return Finding(
        "port-blocked",
        Severity.ERROR,
        f"{sender} cannot connect to {receiver} ({where}: {_WORDS.get(how['kind'], how['kind'])}), "
        f"but {receiver} can connect to {sender}",
        place=receiver,
        why="a firewall drops or refuses new connections in one direction",
        fix=f"on {receiver}, let the job's nodes connect to ports {FIRST_PORT}–{LAST_PORT} and 32768–60999; "
        "ask the administrators, or exclude the host",
    )


def _elsewhere(facts: Facts, pair: Pair, how: Mapping[str, Any]) -> Finding | None:
    """The name leads to another address of the peer than packets to its peers leave from."""
    listens = facts.part(pair[1], "network").get("addresses", ())
    if not listens or how.get("address") in listens:
        return None
    peer, node = facts.host(pair[1]), facts.host(pair[0])
    return Finding(
        "name-and-route-differ",
        Severity.WARNING,
        f"{node} resolves {peer} as {how.get('address')}, but packets of {peer} leave from {', '.join(listens)}",
        place=peer,
        why="ranks may meet on another network than the fast one, or not at all",
        fix=f"export MASTER_ADDR as one of {', '.join(listens)}, if {peer} is the first host; name the interface "
        "in NCCL_SOCKET_IFNAME and GLOO_SOCKET_IFNAME",
        confidence=Confidence.LIKELY,
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
