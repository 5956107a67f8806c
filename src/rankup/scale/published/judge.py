"""What is wrong with a published comparison, as far as its page tells it. What a page does not tell is not evidence
against it: one note lists it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from rankup.findings.engine import Source, collect
from rankup.findings.finding import Confidence, Finding, Severity, in_order
from rankup.scale.published import quantities as q
from rankup.scale.published.curves import Curve
from rankup.scale.published.fairness import FAIRNESS
from rankup.scale.published.pairs import Comparison, Pair
from rankup.scale.published.prose import Claim
from rankup.scale.published.ratios import IMPOSSIBLE, RATIOS

# By what share a sentence may round a ratio.
CLAIM_SLACK = 0.15


def judge(curves: Sequence[Curve], claims: Sequence[Claim]) -> list[Finding]:
    """All findings, most severe first."""
    found = [finding for curve in curves for finding in collect(PUBLISHED, Comparison.of(curve))]
    pairs = [pair for curve in curves for pair in Comparison.of(curve).pairs]
    found += [finding for claim in claims for finding in (*_claim(claim), *_beside_tables(claim, pairs))]
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
    quoted = _quoted(claim)
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
    if claim.found and abs(claim.found / claim.speedup - 1) > CLAIM_SLACK:
        yield Finding(
            "wrong-ratio",
            Severity.WARNING,
            f"the numbers give {claim.found:.2f}, the sentence says {claim.speedup:g}: {quoted}",
            place=claim.place,
            why="the ratio does not follow from the numbers beside it",
            fix="compute it again",
            confidence=Confidence.LIKELY,
        )


def _beside_tables(claim: Claim, pairs: Sequence[Pair]) -> Iterable[Finding]:
    """A sentence without numbers of its own, on a page whose only speed-ups of so many devices are others."""
    given = [
        pair.speedup
        for pair in pairs
        if pair.entry.devices == claim.devices and pair.baseline.devices == 1 and pair.speedup
    ]
    if claim.found or not given or any(abs(one / claim.speedup - 1) <= CLAIM_SLACK for one in given):
        return
    yield Finding(
        "wrong-ratio",
        Severity.WARNING,
        f"the page's numbers give {' or '.join(f'{one:.2f}' for one in given[:3])} on {claim.devices} devices, "
        f"a sentence says {claim.speedup:g}: {_quoted(claim)}",
        place=claim.place,
        why="the ratio does not follow from the numbers on the same page",
        fix="compute it again, or say what it was measured with",
        confidence=Confidence.LIKELY,
    )


def _quoted(claim: Claim) -> str:
    return f"“{claim.text if len(claim.text) < 160 else claim.text[:157] + '…'}”"


PUBLISHED: Mapping[str, Source[Comparison]] = {
    **FAIRNESS,
    **RATIOS,
    "one-run-each": _one_run_each,
    "not-told": _not_told,
}
