"""The cores of each rank: enough of them, and near its GPU."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rankup.core.hostlist import expand
from rankup.doctor.facts import Facts, Part, ranks_named
from rankup.doctor.judges.findings import finding, merged
from rankup.findings.finding import Finding


def judge(facts: Facts) -> Iterator[Finding]:
    yield from merged(
        facts,
        (
            (node, finding)
            for node, ranks in facts.ranks_of.items()
            if (machine := facts.part(node, "machine"))
            for finding in _node(facts, node, ranks, machine)
        ),
    )


def _node(facts: Facts, node: int, ranks: Sequence[Part], machine: Part) -> Iterator[Finding]:
    present = int(machine["cpus"])
    used = {cpu for one in ranks for cpu in one["affinity"]}
    if 0 < len(used) < len(ranks) and len(used) < present:
        yield finding("ranks-share-cores", ranks=len(ranks), cores=_cores(used), present=present)
        return
    lost = [one for one in ranks if _lost(one, present)]
    if lost:
        given = lost[0]["cpus_per_task"]
        yield finding("cpus-per-task-lost", cores=len(lost[0]["affinity"]), given=given)
    threads = sum(int(one["omp_threads"]) for one in ranks if str(one.get("omp_threads") or "").isdigit())
    if len(used) and threads > len(used) and len(ranks) > 1:
        yield finding(
            "too-many-threads",
            ranks=len(ranks),
            threads=threads,
            cores=_cores(used),
            fitting=max(len(used) // len(ranks), 1),
        )
    yield from _far(facts, node, ranks, machine)


def _lost(one: Part, present: int) -> bool:
    given = str(one.get("cpus_per_task") or "")
    return given.isdigit() and 0 < len(one["affinity"]) < min(int(given), present)


def _far(facts: Facts, node: int, ranks: Sequence[Part], machine: Part) -> Iterator[Finding]:
    """Ranks none of whose cores is on the NUMA node of their GPU."""
    numa = machine.get("numa") or {}
    if len(numa) < 2:
        return
    cores = {name: {int(cpu) for cpu in expand(f"[{cpus}]")} for name, cpus in numa.items() if cpus}
    near = {gpu["uuid"]: gpu.get("numa") for gpu in facts.part(node, "gpus").get("gpus", ())}
    far = [
        int(one["rank"])
        for one in ranks
        if one.get("device") and near.get(one["device"]) is not None
        and not set(one["affinity"]) & cores.get(str(near[one["device"]]), set(one["affinity"]))
    ]  # fmt: skip
    if far:
        yield finding("far-from-gpu", ranks=ranks_named(far))


def _cores(cores: set[int]) -> str:
    return f"core {next(iter(cores))}" if len(cores) == 1 else f"{len(cores)} cores"
