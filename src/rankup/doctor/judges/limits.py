"""Limits of the machines: shared memory, open files, locked memory."""

from __future__ import annotations

from collections.abc import Iterator

from rankup.doctor.facts import Facts
from rankup.doctor.judges.findings import finding
from rankup.findings.finding import Finding

_MIB = 1024**2


def judge(facts: Facts) -> Iterator[Finding]:
    machines = facts.parts("machine")
    shm = {node: part["shm"] for node, part in machines.items() if part.get("shm")}
    if none := [
        node for node, one in shm.items() if one["free"] < finding.limits["no-shared-memory"]["free"]
    ]:
        least = min(shm[node]["free"] for node in none)
        yield finding("no-shared-memory", facts.named(none), least=least / _MIB)
    if little := [
        node
        for node, one in shm.items()
        if node not in none and one["bytes"] < finding.limits["little-shared-memory"]["size"]
    ]:
        least = min(shm[node]["bytes"] for node in little)
        yield finding("little-shared-memory", facts.named(little), least=least / _MIB)
    enough = finding.limits["few-open-files"]["files"]
    few = [node for node, part in machines.items() if (part["open_files"][0] or enough) < enough]
    if few:
        least = min(machines[node]["open_files"][0] for node in few)
        yield finding("few-open-files", facts.named(few), least=least)
    locked = [
        node
        for node, part in machines.items()
        if part.get("infiniband")
        and part["locked_memory"][0] is not None
        and part["locked_memory"][0] < finding.limits["locked-memory"]["size"]
    ]
    if locked:
        yield finding(
            "locked-memory", facts.named(locked), locked=machines[locked[0]]["locked_memory"][0] / _MIB
        )
    umasks = {node: part["umask"] for node, part in machines.items() if part.get("umask") is not None}
    if writable := [node for node, umask in umasks.items() if not umask & 0o002]:
        yield finding("umask-open", facts.named(writable))
