"""Do the ratios follow from the numbers, and can the devices explain them?"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from rankup.findings.engine import Source
from rankup.findings.finding import Confidence, Finding, Severity
from rankup.scale.published import quantities as q
from rankup.scale.published.entries import Entry
from rankup.scale.published.pairs import Comparison, Pair

# Efficiency above which the added devices cannot explain it; above the second no cache does.
SUPERLINEAR, IMPOSSIBLE = 1.02, 1.25
# By what share a printed ratio may be off beyond rounding before it is an error.
CARELESS = 0.05


def _wrong_arithmetic(comparison: Comparison) -> Iterable[Finding]:
    for pair in comparison.pairs:
        if pair.agrees is not False or pair.speedup is None or pair.efficiency is None:
            continue
        stated = _stated(pair.entry)
        yield Finding(
            "wrong-ratio",
            Severity.ERROR if pair.error > CARELESS else Severity.WARNING,
            f"{pair.entry.name}: printed {stated}, but its numbers give a speed-up of {pair.speedup:.2f} "
            f"and an efficiency of {pair.efficiency:.0%} against {pair.baseline.name}",
            place=comparison.curve.place,
            why="the ratio does not follow from the numbers beside it",
            fix="compute it again, and say which row is the baseline",
        )


def _stated(entry: Entry) -> str:
    printed = []
    if entry.speedup is not None:
        printed.append(f"a speed-up of {entry.speedup.value:g}")
    if entry.efficiency is not None:
        printed.append(f"an efficiency of {entry.efficiency.value:.0%}")
    return " and ".join(printed)


def _superlinear(comparison: Comparison) -> Iterable[Finding]:
    for pair in comparison.pairs:
        if pair.speedup is None or pair.efficiency is None or pair.efficiency <= SUPERLINEAR + _slack(pair):
            continue
        known = not q.same_precision(pair.baseline.precision, pair.entry.precision)
        yield Finding(
            "superlinear",
            Severity.ERROR if pair.efficiency > IMPOSSIBLE else Severity.WARNING,
            f"{pair.entry.name}: a speed-up of {pair.speedup:.2f} and an efficiency of {pair.efficiency:.0%} "
            f"against {pair.baseline.name}",
            place=comparison.curve.place,
            why="added devices bring at most 100 %. " + _cause(pair, known),
            fix="find what makes the baseline slow, and measure it without that",
            confidence=Confidence.SURE if pair.efficiency > IMPOSSIBLE else Confidence.LIKELY,
        )


def _cause(pair: Pair, precision_known: bool) -> str:
    before, after = pair.baseline, pair.entry
    if precision_known:
        return f"The cause: the baseline ran in {before.precision}, this in {after.precision}"
    if before.global_batch and after.global_batch and before.global_batch != after.global_batch:
        return (
            f"The likely cause: a global batch of {after.global_batch:g} against {before.global_batch:g}; "
            "fewer and larger steps"
        )
    if after.precision and before.precision is None:
        return f"The likely cause: this ran in {after.precision}, and the page does not tell the baseline's precision"
    return (
        "Likely causes: another precision or batch size in the baseline, data loading that limits one process, "
        "samples counted twice, a first run that was not warm"
    )


def _slack(pair: Pair) -> float:
    """What rounding may add to an efficiency."""
    values = [v.slack for v in (pair.baseline.value, pair.entry.value) if v is not None]
    if not values and pair.entry.speedup is not None:
        values = [pair.entry.speedup.slack]
    return sum(values)


def _baseline_missing(comparison: Comparison) -> Iterable[Finding]:
    """Speed-ups over a run that the table does not hold."""
    stated = [
        entry for entry in comparison.curve.entries if entry.speedup is not None and entry.kind == "gpu"
    ]
    if not stated:
        return
    least = min(comparison.curve.entries, key=lambda entry: entry.devices)
    unity = any(entry.speedup and abs(entry.speedup.value - 1) < 0.005 for entry in comparison.curve.entries)
    if least.devices == 1 or any(entry.kind == "cpu" for entry in comparison.curve.entries):
        return
    yield Finding(
        "baseline-missing",
        Severity.WARNING if unity else Severity.ERROR,
        f"the speed-up is against {least.name}, not against one device"
        if unity
        else f"no baseline: speed-ups begin at {least.name}, and what they are divided by is not in the table",
        place=comparison.curve.rows,
        why="a speed-up over several devices hides what the first of them cost",
        fix="add the run on one device, without DDP and with it",
    )


RATIOS: Mapping[str, Source[Comparison]] = {
    "wrong-ratio": _wrong_arithmetic,
    "superlinear": _superlinear,
    "baseline-missing": _baseline_missing,
}
