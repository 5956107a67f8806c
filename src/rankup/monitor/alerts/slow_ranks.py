"""Loaders that are too slow, and stragglers.

In a step that ends with a reduction all ranks take the same time: the slow one computes, and the others wait for it. So
slow is told from waiting by what of a step passes before a rank has its gradients, and begins to wait.
"""

from __future__ import annotations

from collections.abc import Iterator
from statistics import median_low

from rankup.monitor.alerts.alert import LIMITS, Symptom, rank_names
from rankup.monitor.alerts.standstill import is_still
from rankup.monitor.rows import Rates, rates
from rankup.monitor.series import RankSeries, RunSeries

_LOADER, _STRAGGLER = LIMITS["loader-bound"], LIMITS["straggler"]
# Only there does each step of each rank have the same work before one reduction.
STRATEGIES = ("ddp", "dp")

Measured = list[tuple[RankSeries, Rates]]


def loader_bound(run: RunSeries, now: float) -> Iterator[Symptom]:
    measured = _measured(run, now)
    slow = [(one, found) for one, found in measured if (found.data_share or 0.0) > _LOADER["of_a_step"]]
    if not slow:
        return
    share = max(found.data_share or 0.0 for _, found in slow)
    names = rank_names([one for one, _ in slow]) if len(slow) < len(measured) else "all ranks"
    verb = "waits" if len(slow) == 1 and len(measured) > 1 else "wait"
    if len(measured) == 1:
        names, verb = "the training", "waits"
    others = ", and the other ranks wait for it" if len(slow) == 1 < len(measured) else ""
    yield Symptom(
        "loader-bound",
        "run",
        f"{names} {verb} for data in {100 * share:.0f} % of a step{others}",
        "more or faster loading: num_workers up to the cores of a rank, data nearer to the node, less decoding",
        ranks=tuple(one.rank for one, _ in slow),
        lost=share * len(measured),
        hold=_LOADER["hold"],
    )


def stragglers(run: RunSeries, now: float) -> Iterator[Symptom]:
    """A rank that is slow because of its data is ``loader-bound``."""
    if run.facts.get("strategy", STRATEGIES[0]) not in STRATEGIES:
        return
    own = [
        (one, found.own_s - (found.data_s or 0.0), found.step_s)
        for one, found in _measured(run, now)
        if found.own_s is not None and found.step_s is not None
    ]
    if len(own) < 2:
        return
    usual = median_low(seconds for _, seconds, _ in own)
    slow = [
        (one, seconds, step)
        for one, seconds, step in own
        if seconds > _STRAGGLER["slower"] * usual and seconds - usual > _STRAGGLER["of_a_step"] * step
    ]
    if not slow:
        return
    worst, step = max(seconds for _, seconds, _ in slow), slow[0][2]
    ranks = [one for one, _, _ in slow]
    verb, it = ("is", "it") if len(slow) == 1 else ("are", "them")
    host = {one.host for one in ranks}
    whole = len(host) == 1 and len(ranks) > 1 and all(one in ranks for one, _, _ in own if one.host in host)
    names = f"node {ranks[0].host} ({rank_names(ranks).partition(' on ')[0]})" if whole else rank_names(ranks)
    verb, it = ("is", "it") if whole else (verb, it)
    yield Symptom(
        "straggler",
        "run",
        f"{names} {verb} slow: {_ms(worst)} of computation in a step, the others {_ms(usual)}, and they wait for {it}",
        "compare clocks, temperature and power of the GPU, other programs on the node, the cores of the rank; "
        "exclude the node if it stays",
        ranks=tuple(one.rank for one in ranks),
        lost=(len(own) - len(slow)) * (worst - usual) / step,
        hold=_STRAGGLER["hold"],
    )


def _measured(run: RunSeries, now: float) -> Measured:
    """The ranks that have finished enough steps lately."""
    if is_still(run, now):
        return []
    found = [(one, rates(one.series, now, _LOADER["window"])) for one in run.current_ranks(now)]
    return [(one, each) for one, each in found if each.steps >= _LOADER["steps"]]


def _ms(seconds: float) -> str:
    return f"{1000 * seconds:.0f} ms" if seconds < 1 else f"{seconds:.2f} s"
