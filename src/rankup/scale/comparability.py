"""May these configurations be compared? Each finding here is a way in which a published study has fooled its authors.

The sources are applied twice: to a whole family, for one message that names all who differ, and to a baseline with one
configuration, to decide whether that ratio is printed. An error forbids it; a warning is printed below the table.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from math import hypot

from rankup.findings.engine import Source, collect, fails
from rankup.findings.finding import Confidence, Finding, Severity, in_order
from rankup.scale.conditions import CONDITIONS
from rankup.scale.families import Family, label, without_baseline
from rankup.scale.results import Configuration, StudyResults
from rankup.scale.stats import ENOUGH_FOR_RATIO, accuracy_error, median_error
from rankup.scale.work import WORK

# In standard errors. Equally good models, each on test data of its own, are farther apart in one case of twenty (a
# warning), and in one of sixteen thousand (no ratio).
ACCURACY_DOUBT, ACCURACY_ERROR = 2.0, 4.0
# Where nobody tells the number of test samples: less than half a point is noise.
ACCURACY_FLOOR = 0.005


def judge(study: StudyResults, found: Sequence[Family]) -> list[Finding]:
    """What is wrong with comparing the configurations of ``study`` in families, most severe first."""
    findings = [finding for family in found for finding in collect(COMPARABILITY, family)]
    findings += _baseline_missing(study, without_baseline(study, found))
    return in_order([*findings, *failures(study)])


def failures(study: StudyResults) -> list[Finding]:
    """Of the runs themselves."""
    return [Finding.from_dict(dict(one.failure)) for one in study.configurations if one.failure]


def refused(family: Family, one: Configuration) -> bool:
    """Whether the ratio of ``one`` to the baseline of ``family`` must not be printed."""
    return fails(collect(COMPARABILITY, replace(family, others=(one,))))


def _accuracies_apart(family: Family) -> Iterable[Finding]:
    """Against the baseline. They share their test data, so that chance alone rarely reaches the threshold."""
    expected = _accuracies(family.baseline)
    for other in family.others:
        found = _accuracies(other)
        if not (expected and found):
            continue
        before, after = statistics.median(expected), statistics.median(found)
        error, noise = _noise(family.baseline, expected, found)
        apart = abs(after - before)
        if apart <= ACCURACY_DOUBT * error:
            continue
        sure = apart > ACCURACY_ERROR * error and family.study.scaling == "strong"
        yield Finding(
            "accuracy-differs",
            Severity.ERROR if sure else Severity.WARNING,
            f"{family.label(other)} ends at a test accuracy of {after:.2%}, "
            f"{family.label(family.baseline)} at {before:.2%}",
            place="accuracy",
            why=f"{noise} allow {100 * ACCURACY_DOUBT * error:.2f} points between equal models "
            f"({ACCURACY_DOUBT:g} standard errors); a run that trains another model is not a faster one",
            fix="compare the epochs' losses in the runs' records",
            confidence=Confidence.SURE if sure else Confidence.LIKELY,
        )


def _noise(baseline: Configuration, expected: Sequence[float], found: Sequence[float]) -> tuple[float, str]:
    """The standard error of a difference of two accuracies, and what it follows from."""
    spread = hypot(median_error(expected), median_error(found))
    samples = baseline.runs[0].facts.get("test_samples")
    if samples:
        binomial = accuracy_error(statistics.median(expected), statistics.median(found), int(samples))
        return hypot(binomial, spread), f"{int(samples):,} test samples and the spread of the repeats"
    return max(spread, ACCURACY_FLOOR), "the repeats"


def _few_repeats(family: Family) -> Iterable[Finding]:
    few = [one for one in family.configurations if len(one.runs) < ENOUGH_FOR_RATIO]
    if few:
        runs = ", ".join(f"{len(one.runs)} of {family.label(one)}" for one in few)
        yield Finding(
            "few-repeats",
            Severity.WARNING,
            f"too few runs for a ratio: {runs}",
            place="repeats",
            why="repeats on real clusters differ by up to 15 %; one or two runs do not show by how much",
            fix=f"--repeats {ENOUGH_FOR_RATIO} or more; 5 give an interval of the speed-up, 6 one of the time",
        )


def _samples_unknown(family: Family) -> Iterable[Finding]:
    """Weak scaling divides samples/s, and a program that is measured by its output may count none."""
    silent = [one for one in family.configurations if not all(run.samples for run in one.runs)]
    if silent and family.study.scaling == "weak":
        yield Finding(
            "samples-unknown",
            Severity.ERROR,
            "no samples are known of " + "; ".join(family.label(one) for one in silent),
            place="samples",
            why="weak scaling compares samples/s: more devices train more samples in about the same time",
            fix="train in a loop over run.steps or run.epochs, which count samples; or a strong-scaling study",
        )


def _baseline_missing(study: StudyResults, orphans: Sequence[Configuration]) -> Iterable[Finding]:
    if orphans:
        yield Finding(
            "baseline-missing",
            Severity.ERROR,
            "no baseline on one device for " + "; ".join(label(one, study) for one in orphans),
            place="baseline",
            why="a speed-up over several devices hides what the first of them cost",
            fix="add one process to the grid, or name another baseline: --baseline nproc=2",
        )


COMPARABILITY: Mapping[str, Source[Family]] = {
    **WORK,
    "samples-unknown": _samples_unknown,
    "accuracy-differs": _accuracies_apart,
    "few-repeats": _few_repeats,
    **CONDITIONS,
}


def _accuracies(one: Configuration) -> list[float]:
    return [run.accuracy for run in one.runs if run.accuracy is not None]
