"""What a rank costs among ten thousand, and what a failure costs there.

Three parts, which the result and its page (docs/explanation/ten-thousand-ranks.md) keep apart:

- **Simulated**: the real code in one process as one rank of up to 16,384; the others are pretended
  (``one_of_many.py``, ``pretended_ranks.py``).
- **Measured**: real ranks on this machine, also one that is killed (``many_ranks.py``).
- **Extrapolated**: the time that failures cost on 1,000 and 10,000 GPUs, from published failures.

All in one JSON; ``python -m benchmarks.scale_out`` repeats the simulated part alone, and
``python -m benchmarks.scale_out_page`` writes the tables into the page.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks import machine, many_ranks, one_of_many, report
from benchmarks.contest import Claim, Result, Rounds
from rankup.scale.predict.failures import Reliability

SIZES, TENSORS = (64, 1_024, 10_000, 16_384), (300,)
TARGET = 10_000  # ranks
PER_NODE = one_of_many.PER_NODE
#: Of each part of a training, what goes into the result.
KEPT = (
    "collectives", "exchanges", "bytes given", "bytes got", "store operations", "watch: store operations",
    "files opened", "files written", "fsyncs", "stats", "cpu s", "memory bytes", "groups", "descriptors", "neighbours",
    "files", "nodes", "manifest bytes",
)  # fmt: skip

# Llama 3 405B (https://arxiv.org/abs/2407.21783, section 3.3.4): unexpected interruptions of a job of 16,384 H100.
INTERRUPTIONS, DAYS, GPUS = 419, 54, 16_384
NODE_MTBF_S = DAYS * 86_400 / INTERRUPTIONS * GPUS / PER_NODE


def simulated(sizes: tuple[int, ...], tensors: tuple[int, ...]) -> dict[str, Any]:
    """{tensors: {ranks: {who: {part: {what: number}}}}}."""
    found: dict[str, Any] = {}
    for count in tensors:
        for size in sizes:
            with tempfile.TemporaryDirectory() as scratch:
                costs = one_of_many.simulate(size, count, Path(scratch))
            found.setdefault(str(count), {})[str(size)] = {who: _kept(parts) for who, parts in costs.items()}
            print(f"  simulated: {size:,} ranks, {count:,} tensors", flush=True)
    return found


def _kept(parts: Mapping[str, Mapping[str, float]]) -> dict[str, Any]:
    return {
        part: _rounded({name: costs[name] for name in KEPT if costs.get(name)})
        for part, costs in parts.items()
    }


def _rounded(costs: Mapping[str, float]) -> dict[str, float]:
    return {name: float(f"{value:.4g}") for name, value in costs.items()}


def failures() -> list[dict[str, float]]:
    """The best interval between saves, and the share of the time that is lost, by size, save and restart."""
    rows = []
    for gpus in (1_000, 10_000):
        for save in (1.0, 10.0, 60.0):
            for restart in (120.0, 600.0):
                nodes = gpus // PER_NODE
                reliability = Reliability(NODE_MTBF_S, save, restart)
                interval = reliability.interval(nodes)
                rows.append(
                    {
                        "gpus": gpus,
                        "hours between failures": round(NODE_MTBF_S / nodes / 3600, 2),
                        "save stops for s": save,
                        "restart s": restart,
                        "best interval s": round(interval),
                        "lost to saves": round(save / (interval + save), 4),
                        "lost to restarts": round(restart * nodes / NODE_MTBF_S, 4),
                        "lost in all": round(1 - reliability.goodput(nodes), 4),
                    }
                )
    return rows


def run(quick: bool, measured: Mapping[str, Any] | None = None) -> Result:
    """``measured``: of a run before, if that part is not to be repeated."""
    sizes, tensors = (SIZES[:2], TENSORS[:1]) if quick else (SIZES, TENSORS)
    found = simulated(sizes, tensors)
    judged = TARGET if TARGET in sizes else sizes[-1]
    # CPU seconds depend on what else the machine does: those that are judged are taken three times.
    rounds = [found, *(simulated((judged,), tensors[-1:]) for _ in range(0 if quick else 2))]
    with tempfile.TemporaryDirectory() as scratch:
        order = _kept(one_of_many.order(sizes[-1], Path(scratch)))
    if measured is None:
        measured = _measured(quick)
    return result(found, [each[str(tensors[-1])][str(judged)] for each in rounds], order, measured)


def _measured(quick: bool) -> dict[str, Any]:
    found: dict[str, Any] = {"killed": {}, "saved": []}
    for ranks in (2,) if quick else (4, 64):
        found["killed"][str(ranks)] = _rounded(many_ranks.killed(ranks, 0.2))
    # 16 ranks with 1 GiB each fit into this machine if most of it is one file that all of them map.
    for ranks, state, frozen in ((2, 16, 0),) if quick else ((16, 128, 0), (2, 1024, 0), (16, 48, 976)):
        found["saved"].append(_rounded(many_ranks.saved(ranks, state, frozen)))
    return found


def result(
    found: Mapping[str, Any],
    judged: Sequence[Mapping[str, Any]],
    order: Mapping[str, Any],
    measured: Mapping[str, Any],
) -> Result:
    """``judged``: the costs for each round of the size that has targets."""
    (first, *_), tensors = judged, list(found)
    sizes = found[tensors[-1]]
    settings = {
        "ranks": [int(size) for size in sizes],
        "ranks of a node": PER_NODE,
        "parameter tensors": [int(count) for count in tensors],
        "of the claims": next(int(size) for size, costs in sizes.items() if costs is first),
        "steps of an epoch": one_of_many.Schedule().epoch,
    }
    notes = [
        "The other ranks are pretended. Real ranks, and what failures cost: docs/explanation/ten-thousand-ranks.md."
    ]
    details = {"simulated": found, "sample order": order, "measured": measured, "extrapolated": failures()}
    rounds, claims = _claims(judged, order)
    for save in measured["saved"]:
        text = f"{save['ranks']:.0f} real ranks, a state of {save['state bytes'] / 1e6:,.0f} MB: MB of a save"
        rounds[text] = [save["beyond the state bytes"] / 1e6]
        claims.append(Claim(text, text, None, save["state bytes"] / save["ranks"] / 1e6 + 64, at_most=True))
    return Result(
        "scale-out", "One rank of ten thousand", "count, MB or s", settings, rounds, claims, notes, details
    )


def _claims(judged: Sequence[Mapping[str, Any]], order: Mapping[str, Any]) -> tuple[Rounds, list[Claim]]:
    rounds: Rounds = {}
    claims = []

    def claim(text: str, target: float, value: Callable[[Mapping[str, Any]], float]) -> None:
        rounds[text] = [value(costs) for costs in judged]
        claims.append(Claim(text, text, None, target, at_most=True))

    def of(who: str, part: str, what: str) -> Callable[[Mapping[str, Any]], float]:
        scale = 1e6 if what == "memory bytes" else 1
        return lambda costs: float(costs[who][part].get(what, 0) / scale)

    def beyond(who: str, what: str) -> Callable[[Mapping[str, Any]], float]:
        return lambda costs: of(who, "step", what)(costs) - of("plain DDP", "step", what)(costs)

    def opened(who: str) -> Callable[[Mapping[str, Any]], float]:
        return lambda costs: sum(of(who, "run", what)(costs) for what in ("descriptors", "neighbours"))

    for who in ("rank 0", "rank 1"):
        for what in ("collectives", "bytes given", "store operations"):
            claim(f"{who}, a step beyond DDP: {what}", 0, beyond(who, what))
        for part in ("first save", "save"):
            claim(f"{who}, {part}: CPU s", 1, of(who, part, "cpu s"))
            claim(f"{who}, {part}: MB", 100, of(who, part, "memory bytes"))
        claim(f"{who}, descriptors beyond the backend's", 64, opened(who))
    snapshot = of("rank 0", "snapshot", "files")
    claim(
        "files of a snapshot for each node",
        1.5,
        lambda costs: snapshot(costs) / of("rank 0", "snapshot", "nodes")(costs),
    )
    first = order["1e+12 samples"]
    claim("10¹² samples, until the first batch: CPU s", 0.1, lambda _: float(first.get("cpu s", 0)))
    claim("10¹² samples, until the first batch: MB", 10, lambda _: float(first.get("memory bytes", 0) / 1e6))
    return rounds, claims


if __name__ == "__main__":
    facts = machine.facts()
    before = json.loads((Path(__file__).parent / "results" / "scale-out.json").read_text())
    report.save(report.document(run(False, before["details"]["measured"]), facts))
