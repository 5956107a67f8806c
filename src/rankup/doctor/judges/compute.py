"""With tensors: groups that do not form, sums that are wrong, ranks and links that are slow."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Iterator

from rankup.doctor.facts import Facts, Part, ranks_named
from rankup.doctor.judges.findings import finding
from rankup.findings.finding import Confidence, Finding


def judge(facts: Facts) -> Iterator[Finding]:
    ranks = [(node, one) for node, part in facts.parts("compute").items() for one in part.get("ranks", ())]
    if not ranks:
        return
    yield from _stopped(facts, ranks)
    yield from _wrong(facts, ranks)
    yield from _slow(facts, ranks)
    yield from _transport(facts)


def _stopped(facts: Facts, ranks: list[tuple[int, Part]]) -> Iterator[Finding]:
    """Ranks that did not get to the end. Who stopped first is the cause; the others waited for it."""
    order = ("start", "device", "product", "group", "sum", "pairs", "bandwidth", "end")
    reached = {id(one): order.index(one.get("at", one["stage"])) for _, one in ranks if one["stage"] != "end"}
    if not reached:
        return
    least = min(reached.values())
    first = [(node, one) for node, one in ranks if reached.get(id(one)) == least]
    nodes = [node for node, _ in first]
    errors = [one["error"] for _, one in first if one.get("error")]
    stage = first[0][1].get("at", first[0][1]["stage"])
    words = {
        "start": "did not import torch", "device": "could not use the device", "product": "computed no matrix product",
        "group": "formed no process group",
    }.get(stage, f"stopped in {stage}")  # fmt: skip
    no_torch = (
        "run python -c 'import torch; print(torch.cuda.is_available())' there, with the job's environment"
    )
    yield finding(
        "compute-failed" if errors else "compute-unfinished",
        facts.named(nodes),
        ranks=ranks_named([int(one["rank"]) for _, one in first]),
        what=words,
        error=errors[0] if errors else "",
        fix=no_torch if stage in ("start", "device") else "",
        confidence=Confidence.SURE if errors and stage != "group" else Confidence.LIKELY,
    )


def _wrong(facts: Facts, ranks: list[tuple[int, Part]]) -> Iterator[Finding]:
    node_of = {int(one["rank"]): node for node, one in ranks}
    pairs = {frozenset((int(one["rank"]), peer)) for _, one in ranks for peer in one.get("wrong", ())}
    sums = [(node, int(one["rank"])) for node, one in ranks if one.get("right") is False]
    if not pairs and not sums:
        return
    # The rank that is in most wrong pairs; it is in all of them if it is the only cause.
    often = Counter(rank for pair in pairs for rank in pair)
    most = [rank for rank, count in often.items() if count == max(often.values())] if often else []
    blamed = sorted({node_of[rank] for rank in most if rank in node_of}) or sorted({node for node, _ in sums})
    where = f"most often {ranks_named(most)}" if most else f"on {ranks_named([rank for _, rank in sums])}"
    yield finding("all-reduce-wrong", facts.named(blamed), pairs=len(pairs), where=where)


def _slow(facts: Facts, ranks: list[tuple[int, Part]]) -> Iterator[Finding]:
    flops = {(node, int(one["rank"])): float(one["flops"]) for node, one in ranks if one.get("flops")}
    if len(flops) < 2:
        return
    usual = statistics.median(flops.values())
    kind = "cuda" if str(ranks[0][1].get("device", "")).startswith("cuda") else "cpu"
    for (node, rank), rate in flops.items():
        if rate < finding.limits["slow-rank"][kind] * usual:
            yield finding(
                "slow-rank",
                facts.host(node),
                rank=rank,
                rate=rate / 1e9,
                usual=usual / 1e9,
                fix=f"on {facts.host(node)}: top; ask for whole nodes (--exclusive)" if kind == "cpu" else "",
            )


def _transport(facts: Facts) -> Iterator[Finding]:
    sockets = [
        node
        for node, part in facts.parts("compute").items()
        if (part.get("nccl") or {}).get("network") == "Socket" and len(facts.hosts) > 1
    ]
    fast = [node for node in sockets if facts.part(node, "machine").get("infiniband")]
    if fast:
        plugin = (facts.part(fast[0], "compute").get("nccl") or {}).get("plugin")
        yield finding(
            "nccl-on-sockets",
            facts.named(fast),
            devices=", ".join(facts.part(fast[0], "machine")["infiniband"][:4]),
            why=f"its log says: {plugin}" if plugin else "",
        )
