"""Was the same work done in the same way? Precision, batch, epochs, accuracy, as far as the page tells them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from rankup.findings.engine import Source
from rankup.findings.finding import Confidence, Finding, Severity
from rankup.scale.published import quantities as q
from rankup.scale.published.pairs import Comparison, Pair
from rankup.scale.published.setup import OF_TIMES_ALONE, differs
from rankup.scale.stats import accuracy_error

# Points of accuracy that nobody can call noise, or that may be more than noise, if the test samples are unknown.
WORSE, DOUBTFUL = 0.02, 0.005
ACCURACY_ERRORS = 4.0


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


def _global_batch(comparison: Comparison) -> Iterable[Finding]:
    """Times of the whole training: other steps are other work. Rates and times per epoch count samples."""
    curve = comparison.curve
    for pair in comparison.pairs:
        before, after = pair.baseline.global_batch, pair.entry.global_batch
        if not (before and after) or before == after or curve.metric != "time" or curve.weak:
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
    if comparison.curve.per != "step" or comparison.curve.weak:
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


def _setup(comparison: Comparison) -> Iterable[Finding]:
    """Another GPU, model or data set than the baseline's. Only for a printed ratio: else nobody compares the rows."""
    curve = comparison.curve
    found: dict[str, Pair] = {}
    for pair in comparison.pairs:
        if pair.entry.speedup is None and pair.entry.efficiency is None:
            continue
        for what, told in pair.entry.setup.items():
            if what in OF_TIMES_ALONE and (curve.metric != "time" or curve.weak or curve.per == "step"):
                continue
            if differs(what, pair.baseline.setup.get(what), told):
                found.setdefault(what, pair)
    for what, pair in found.items():
        yield Finding(
            "unequal-setup",
            Severity.ERROR,
            f"the {what} differs: {pair.baseline.setup[what]} with {pair.baseline.name}, "
            f"{pair.entry.setup[what]} with {pair.entry.name}",
            place=curve.rows,
            why="the speed-up is not that of the devices alone",
            fix=f"measure the baseline with the same {what}",
        )


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


FAIRNESS: Mapping[str, Source[Comparison]] = {
    "unequal-precision": _precision,
    "unequal-global-batch": _global_batch,
    "unequal-steps": _steps_of_other_batches,
    "unequal-epochs": _epochs,
    "unequal-setup": _setup,
    "accuracy-differs": _accuracy,
}
