"""What is wrong with a published comparison, as far as its page tells it. What a page does not tell is no evidence
against it: one note lists it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from rankup.findings.engine import Source, collect
from rankup.findings.finding import Confidence, Finding, Severity, in_order
from rankup.scale.published import quantities as q
from rankup.scale.published.curves import Curve, Entry
from rankup.scale.published.pairs import Pair, pairs_of
from rankup.scale.published.prose import Claim
from rankup.scale.stats import accuracy_error

# Efficiency above which the added devices cannot explain it; above the second no cache does.
SUPERLINEAR, IMPOSSIBLE = 1.02, 1.25
# By what share a printed ratio may be off beyond rounding before it is an error.
CARELESS = 0.05
# Points of accuracy that nobody can call noise, or that may be more than noise, if the test samples are unknown.
WORSE, DOUBTFUL = 0.02, 0.005
ACCURACY_ERRORS = 4.0


@dataclass(frozen=True)
class Comparison:
    """One curve, and its entries beside their baselines."""

    curve: Curve
    pairs: Sequence[Pair]

    @classmethod
    def of(cls, curve: Curve) -> Comparison:
        return cls(curve, pairs_of(curve))


def judge(curves: Sequence[Curve], claims: Sequence[Claim]) -> list[Finding]:
    """All findings, most severe first."""
    found = [finding for curve in curves for finding in collect(PUBLISHED, Comparison.of(curve))]
    found += [finding for claim in claims for finding in _claim(claim)]
    return in_order(_merged(found))


def _merged(findings: Sequence[Finding]) -> list[Finding]:
    """Notes that say the same of several tables become one."""
    places: dict[str, list[str]] = {}
    for finding in findings:
        if finding.severity is Severity.NOTE:
            places.setdefault(finding.message, []).append(finding.place)
    return [
        replace(finding, place=_places(places[finding.message]))
        if finding.severity is Severity.NOTE
        else finding
        for finding in findings
    ]


def _places(places: Sequence[str]) -> str:
    more = len(dict.fromkeys(places)) - 1
    return places[0] + (f" and {more} more" if more else "")


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


def _precision(comparison: Comparison) -> Iterable[Finding]:
    apart = [p for p in comparison.pairs if not q.same_precision(p.baseline.precision, p.entry.precision)]
    if apart:
        first = apart[0]
        yield Finding(
            "unequal-precision",
            Severity.ERROR,
            f"the precision differs: {first.baseline.precision} with {first.baseline.name}, "
            + ", ".join(f"{p.entry.precision} with {p.entry.name}" for p in apart),
            place=comparison.curve.rows,
            why="mixed precision is several times faster on one GPU already: the speed-up is not that of the GPUs",
            fix="measure the baseline in the same precision as the others",
        )


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


def _global_batch(comparison: Comparison) -> Iterable[Finding]:
    """Times of the whole training: other steps are other work. Rates and times per epoch count samples."""
    curve = comparison.curve
    for pair in comparison.pairs:
        before, after = pair.baseline.global_batch, pair.entry.global_batch
        if not (before and after) or before == after or curve.metric != "time" or curve.around.weak:
            continue
        if curve.per in ("step", "target"):
            continue
        equal = _accuracy_gap(pair) is not None and not _worse(comparison, pair)
        total = curve.per == ""
        yield Finding(
            "unequal-global-batch",
            Severity.ERROR if total and not equal else Severity.WARNING,
            f"the global batch differs: {before:g} with {pair.baseline.name}, {after:g} with {pair.entry.name}",
            place=curve.rows,
            why="a larger batch takes fewer steps, and often more epochs to the same accuracy"
            + (
                ""
                if equal
                else "; the accuracy that would show it is not told"
                if _accuracy_gap(pair) is None
                else ""
            ),
            fix="the same global batch in all rows, or the time to the same accuracy",
            confidence=Confidence.SURE if total and not equal else Confidence.LIKELY,
        )
        return


def _steps_of_other_batches(comparison: Comparison) -> Iterable[Finding]:
    """The time of a step says nothing if the steps hold other numbers of samples."""
    if comparison.curve.per != "step":
        return
    for pair in comparison.pairs:
        before, after = pair.baseline.global_batch, pair.entry.global_batch
        if before and after and before != after and (pair.entry.speedup or pair.entry.efficiency):
            yield Finding(
                "unequal-global-batch",
                Severity.WARNING,
                f"times of steps of {before:g} and {after:g} samples are compared",
                place=comparison.curve.rows,
                why="a step of more samples is more work",
                fix="samples per second",
                confidence=Confidence.LIKELY,
            )
            return


def _epochs(comparison: Comparison) -> Iterable[Finding]:
    if comparison.curve.metric != "time" or comparison.curve.per:
        return
    for pair in comparison.pairs:
        before, after = pair.baseline.epochs, pair.entry.epochs
        if before and after and before != after:
            yield Finding(
                "unequal-epochs",
                Severity.ERROR,
                f"the number of epochs differs: {before} with {pair.baseline.name}, {after} with {pair.entry.name}",
                place=comparison.curve.rows,
                why="a run of fewer epochs is not faster",
                fix="the time of the same epochs, or the time to the same accuracy",
            )
            return


def _accuracy(comparison: Comparison) -> Iterable[Finding]:
    worst = [
        pair for pair in comparison.pairs if (gap := _accuracy_gap(pair)) is not None and gap < -DOUBTFUL
    ]
    for pair in worst:
        gap = _accuracy_gap(pair) or 0.0
        sure = _worse(comparison, pair)
        if not sure and -gap <= _noise(comparison, pair) / 2:
            continue
        assert pair.entry.accuracy is not None and pair.baseline.accuracy is not None
        yield Finding(
            "accuracy-differs",
            Severity.ERROR if sure else Severity.WARNING,
            f"{pair.entry.name} ends at an accuracy of {pair.entry.accuracy.value:.2%}, "
            f"{pair.baseline.name} at {pair.baseline.accuracy.value:.2%}",
            place=comparison.curve.rows,
            why="a run that trains a worse model is not a faster one",
            fix="the time to the same accuracy",
            confidence=Confidence.SURE if sure else Confidence.LIKELY,
        )


def _accuracy_gap(pair: Pair) -> float | None:
    if pair.baseline.accuracy is None or pair.entry.accuracy is None:
        return None
    return pair.entry.accuracy.value - pair.baseline.accuracy.value


def _worse(comparison: Comparison, pair: Pair) -> bool:
    gap = _accuracy_gap(pair)
    return gap is not None and -gap > _noise(comparison, pair)


def _noise(comparison: Comparison, pair: Pair) -> float:
    """The loss of accuracy that chance does not explain."""
    samples = comparison.curve.around.test_samples
    if samples and pair.baseline.accuracy and pair.entry.accuracy:
        before, after = min(pair.baseline.accuracy.value, 1.0), min(pair.entry.accuracy.value, 1.0)
        return ACCURACY_ERRORS * accuracy_error(before, after, samples)
    return WORSE


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


def _one_run_each(comparison: Comparison) -> Iterable[Finding]:
    repeats = comparison.curve.around.repeats
    told = {entry.repeats for entry in comparison.curve.entries if entry.repeats}
    if repeats == 1 or told == {1}:
        yield Finding(
            "one-run-each",
            Severity.WARNING,
            "one run of each",
            place=comparison.curve.rows,
            why="repeats on real clusters differ by 0.8 % as a rule and by up to 15 %; one run does not show it",
            fix="three runs or more, their median and their range",
        )


def _not_told(comparison: Comparison) -> Iterable[Finding]:
    """What one would have to know to believe it."""
    curve, entries = comparison.curve, comparison.curve.entries
    missing = []
    if any(entry.precision is None for entry in entries):
        missing.append("precision")
    if any(entry.global_batch is None for entry in entries):
        missing.append("global batch")
    if any(entry.accuracy is None for entry in entries):
        missing.append("accuracy")
    if curve.around.repeats is None and not any(entry.repeats for entry in entries):
        missing.append("number of runs")
    if "warm" not in curve.around.text.lower():
        missing.append("warm-up")
    if missing:
        yield Finding(
            "not-told",
            Severity.NOTE,
            "not told: " + ", ".join(missing),
            place=curve.rows,
            why="these are what published speed-ups were wrong about most often",
        )


def _claim(claim: Claim) -> Iterable[Finding]:
    before = claim.precision.get("one")
    after = claim.precision.get(claim.devices, claim.precision.get("many"))
    quoted = f"“{claim.text if len(claim.text) < 160 else claim.text[:157] + '…'}”"
    efficiency = (claim.found or claim.speedup) / claim.devices
    if not q.same_precision(before, after):
        yield Finding(
            "unequal-precision",
            Severity.ERROR,
            f"the precision differs: {before} with one device, {after} with {claim.devices}: {quoted}",
            place=claim.place,
            why="mixed precision is several times faster on one GPU already: the speed-up is not that of the GPUs",
            fix="measure the baseline in the same precision as the others",
        )
    if efficiency > 1.1:
        sure = efficiency > IMPOSSIBLE
        cause = f"it ran in {after}, and the page does not tell the baseline's precision" if after and not before else (
            "another precision or batch size in the baseline, or samples counted twice"
        )  # fmt: skip
        yield Finding(
            "superlinear",
            Severity.ERROR if sure else Severity.WARNING,
            f"{claim.devices} devices and an efficiency of {efficiency:.0%}: {quoted}",
            place=claim.place,
            why=f"added devices bring at most 100 %. The likely cause: {cause}",
            fix="find what makes the baseline slow, and measure it without that",
            confidence=Confidence.SURE if sure else Confidence.LIKELY,
        )
    if claim.found and abs(claim.found / claim.speedup - 1) > 0.15:
        yield Finding(
            "wrong-ratio",
            Severity.WARNING,
            f"the numbers give {claim.found:.2f}, the sentence says {claim.speedup:g}: {quoted}",
            place=claim.place,
            why="the ratio does not follow from the numbers beside it",
            fix="compute it again",
            confidence=Confidence.LIKELY,
        )


PUBLISHED: Mapping[str, Source[Comparison]] = {
    "unequal-precision": _precision,
    "wrong-ratio": _wrong_arithmetic,
    "superlinear": _superlinear,
    "unequal-global-batch": _global_batch,
    "unequal-steps": _steps_of_other_batches,
    "unequal-epochs": _epochs,
    "accuracy-differs": _accuracy,
    "baseline-missing": _baseline_missing,
    "one-run-each": _one_run_each,
    "not-told": _not_told,
}


def _slack(pair: Pair) -> float:
    """What rounding may add to an efficiency."""
    values = [v.slack for v in (pair.baseline.value, pair.entry.value) if v is not None]
    if not values and pair.entry.speedup is not None:
        values = [pair.entry.speedup.slack]
    return sum(values)


def _stated(entry: Entry) -> str:
    printed = []
    if entry.speedup is not None:
        printed.append(f"a speed-up of {entry.speedup.value:g}")
    if entry.efficiency is not None:
        printed.append(f"an efficiency of {entry.efficiency.value:.0%}")
    return " and ".join(printed)
