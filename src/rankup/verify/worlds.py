"""Judges two trainings on different numbers of processes, by their distance and their samples."""

from __future__ import annotations

from rankup.findings.finding import Finding, Severity
from rankup.verify.causes import what
from rankup.verify.first_difference import Difference
from rankup.verify.values import FP64_TOLERANCE, Distance


def judge_any_world(apart: Distance, difference: Difference | None) -> tuple[str, bool, Finding | None]:
    """(verdict, proved?, finding) for any-world, which promises the same bits: there is no tolerance."""
    if difference is None and apart == Distance():
        return "identical", True, None
    first = f"first {apart.tensor or apart.unequal} at the end"
    if difference is not None:
        first = f"first {what(difference)} at step {difference.step}"
    return (
        f"differs: {first}",
        False,
        Finding(
            "other-model",
            Severity.ERROR,
            f"another number of processes trains another model, {first}",
            why='with exact="any-world" every step must be the same, bit for bit',
            fix="the script must not use the rank or the number of processes in its computation, and must not draw "
            "random numbers outside of the steps; all devices must be of one kind",
        ),
    )


def judge_worlds(apart: Distance, same: bool) -> tuple[str, bool, Finding | None]:
    """(verdict, proved?, finding): equal, or within fp64's tolerance; other precisions are not judged."""
    if not same:
        return (
            "differs",
            False,
            Finding(
                "other-samples",
                Severity.ERROR,
                "another number of processes trains on other samples",
                why="at some step the samples of all ranks together are not those of the uninterrupted training",
                fix="the data set must not depend on the rank or the number of processes: rankup shards it",
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
                why="rounding does not change this value",
                fix="no option of the optimizer may depend on the number of processes",
            ),
        )
    if apart.largest == 0:
        return "identical", True, None
    largest = f"largest difference {apart.largest:.1e} ({apart.tensor})"
    if apart.within:
        return f"within {FP64_TOLERANCE:g}: {largest}", True, None
    if not apart.double:
        return (
            f"not judged: {largest}",
            True,
            Finding(
                "rounding-not-judged",
                Severity.NOTE,
                f"on another number of processes the final weights differ by {apart.largest:.1e}; in this precision "
                "that may be rounding or a fault",
                why="sums over other parts of a batch are rounded differently, and an optimizer amplifies this",
                fix="use --precision fp64 without dropout and BatchNorm: there rounding is at most 1e-9",
            ),
        )
    return (
        f"differs: {largest}",
        False,
        Finding(
            "other-model",
            Severity.ERROR,
            f"another number of processes trains another model: {apart.tensor} differs by {apart.largest:.1e}",
            why="the samples of each step are the same, and in fp64 rounding is at most 1e-9",
            fix="turn off dropout and BatchNorm, which depend on how a batch is divided; do not use the rank or the "
            "number of processes in the computation",
        ),
    )
