"""Two trainings on other numbers of processes: what their distance and their samples say."""

from __future__ import annotations

from rankup.findings.finding import Finding, Severity
from rankup.verify.causes import what
from rankup.verify.first_difference import Difference
from rankup.verify.values import FP64_TOLERANCE, Distance


def judge_any_world(apart: Distance, difference: Difference | None) -> tuple[str, bool, Finding | None]:
    """(verdict, proved?, what is wrong) of a training that promises the same bits: nothing is near enough."""
    if difference is None and apart == Distance():
        return "identical", True, None
    first = f"first {apart.tensor or apart.unequal} in the end"
    if difference is not None:
        first = f"first {what(difference)} at step {difference.step}"
    return (
        f"differs: {first}",
        False,
        Finding(
            "other-model",
            Severity.ERROR,
            f"another number of processes trains another model, {first}",
            why='with exact="any-world" every step is to be the same, bit for bit',
            fix="what the script computes from the rank or the number of processes, or draws outside of the steps, "
            "does that; so do processes on unlike devices",
        ),
    )


def judge_worlds(apart: Distance, same: bool) -> tuple[str, bool, Finding | None]:
    """(verdict, proved?, what is wrong): equal, or as near as fp64 rounds; in other precisions only the distance."""
    if not same:
        return (
            "differs",
            False,
            Finding(
                "other-samples",
                Severity.ERROR,
                "another number of processes trains on other samples",
                why="at some step the samples of all ranks together are not those of the uninterrupted training",
                fix="the data must not look at the rank or at the number of processes: rankup shards it",
            ),
        )
    if apart.unequal:
        return (
            "differs",
            False,
            Finding(
                "other-options",
                Severity.ERROR,
                f"another number of processes ends with another {apart.unequal}",
                why="it is no number that rounding could change",
                fix="nothing that the optimizer goes by may depend on the number of processes",
            ),
        )
    if apart.largest == 0:
        return "identical", True, None
    said = f"largest difference {apart.largest:.1e} ({apart.tensor})"
    if apart.within:
        return f"within {FP64_TOLERANCE:g}: {said}", True, None
    if not apart.double:
        return (
            f"not judged: {said}",
            True,
            Finding(
                "rounding-not-judged",
                Severity.NOTE,
                f"on another number of processes the weights end {apart.largest:.1e} apart; whether that is rounding "
                "cannot be told in this precision",
                why="sums over other parts of a batch round in another way, and an optimizer amplifies it",
                fix="--precision fp64 without dropout and BatchNorm tells: there it is 1e-9 or less",
            ),
        )
    return (
        f"differs: {said}",
        False,
        Finding(
            "other-model",
            Severity.ERROR,
            f"another number of processes trains another model: {apart.tensor} ends {apart.largest:.1e} apart",
            why="the samples of each step are the same, and in fp64 rounding leaves 1e-9 or less",
            fix="dropout's masks and BatchNorm's statistics depend on how a batch is shared out; so does what the "
            "script computes from the rank or the number of processes",
        ),
    )
