"""The scenarios on other numbers of processes: a training that each of them continues, and a whole one of each."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random

from rankup.errors import RankupError
from rankup.findings.finding import Finding, Severity
from rankup.snapshots.layout import entries, trainings
from rankup.verify.causes import what as first_names
from rankup.verify.conclusion import NOT_JUDGED_ROUNDING
from rankup.verify.diagnosis import of_end
from rankup.verify.first_difference import (
    Difference,
    compared,
    first_difference,
    other_end,
    over_ranks,
    same_samples,
)
from rankup.verify.plan import choose_stops
from rankup.verify.scenario import Scenario, Trial
from rankup.verify.trace_reader import FINAL_STATE, AttemptTrace
from rankup.verify.values import FP64_TOLERANCE, Distance, distance, distance_at_exit


@dataclass(frozen=True)
class OtherWorlds:
    """Trainings on other numbers of processes than ``reference``, the uninterrupted one. ``ignore``: names of state
    that is never twice the same."""

    trial: Trial
    reference: AttemptTrace
    ignore: frozenset[str]

    def continued(self, random: Random) -> Scenario:
        """Stop after a random step, continue with the next number of processes, and compare the final states."""
        worlds, last = self.trial.plan.worlds, self.reference.last
        if last < len(worlds):
            raise RankupError(
                "too-few-steps",
                f"{last} steps are too few for {len(worlds)} numbers of processes",
                hint="use more --steps, or a shorter --world",
            )
        made = []
        ask = self.trial.ask("to its end", "snapshots-of-other-worlds")
        for processes, step in zip(worlds, choose_stops(random, last, len(worlds)), strict=False):
            what = f"to be stopped after step {step}"
            ended = self.trial.attempts.run(replace(ask, what=what, processes=processes, steps=step))
            assert ended.attempt is not None  # it was not killed
            made.append(ended.attempt)
        made += self.trial.to_the_end(replace(ask, processes=worlds[-1]))
        return self._judged("stopped, other processes", "→".join(map(str, worlds)), made, ask.snapshots)

    def whole(self) -> Iterator[Scenario]:
        """Each other number of processes trains from the beginning: of a training that is stopped after a random step
        it may have trained the last one alone. Ends with the first that differs."""
        for processes in dict.fromkeys(self.trial.plan.worlds):
            if processes == self.trial.plan.processes:
                continue
            ask = self.trial.ask("to its end", f"snapshots-of-{processes}-processes")
            made = self.trial.to_the_end(replace(ask, processes=processes))
            scenario = self._judged("uninterrupted, other processes", str(processes), made, ask.snapshots)
            yield scenario
            if not scenario.same:
                return

    def _judged(self, what: str, processes: str, made: list[AttemptTrace], snapshots: Path) -> Scenario:
        reference, apart = self.reference, self._distance(made[-1], snapshots)
        verdict: str
        finding: Finding | None
        if other_end(reference, made) is not None:
            verdict, proved, finding = "differs", False, of_end(reference, made[-1])
        elif reference.any_world:
            shards = [over_ranks(attempt) for attempt in made]
            verdict, proved, finding = judge_any_world(apart, first_difference(over_ranks(reference), shards))
        else:
            same = all(same_samples(reference, attempt) for attempt in made)
            verdict, proved, finding = judge_worlds(apart, same)
        steps = compared(reference, made)
        tried = tuple(f"stopped after step {attempt.last}" for attempt in made[:-1])
        return Scenario(what, processes, len(made), 0, steps, verdict, proved, finding, apart, tried=tried)

    def _distance(self, other: AttemptTrace, snapshots: Path) -> Distance:
        """What the scripts end with says more than a snapshot: the code after the loop has run, a loop that ``break``
        leaves saves nothing, and of several trainings each is in it. Sharded models have no such file."""
        any_world = self.reference.any_world
        mine, theirs = (attempt.folder / FINAL_STATE for attempt in (self.reference, other))
        if not any_world and mine.exists() and theirs.exists():
            return distance_at_exit(mine, theirs, self.trial.python, self.ignore)
        saved = self.trial.attempts.folder / "snapshots-of-uninterrupted"
        if any_world and not any(entries(folder) for folder in trainings(saved)):
            return Distance()  # a ``break`` left it: every step is compared there, and so is the end
        return distance(saved, snapshots, self.trial.python)


def judge_any_world(apart: Distance, difference: Difference | None) -> tuple[str, bool, Finding | None]:
    """(verdict, proved?, finding) for any-world, which promises the same bits: there is no tolerance."""
    if difference is None and apart == Distance():
        return "identical", True, None
    first = f"first {apart.tensor or apart.unequal} at the end"
    if difference is not None:
        first = f"first {first_names(difference)} at step {difference.step}"
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
    """(verdict, proved?, finding): equal, or within fp64's tolerance; other precisions are not judged. ``same``: so are
    the samples. Those of a part that is padded to its longest one look otherwise, and train the same weights."""
    if not (same or apart.within):
        return (
            "differs",
            False,
            Finding(
                "other-samples",
                Severity.ERROR,
                "another number of processes trains on other samples",
                why="at some step the samples of all ranks together are not those of the uninterrupted training",
                fix="the data set must not depend on the rank or the number of processes: rankup shards it. Padding to "
                'the longest sample of a part looks so, too: pad to one length, or train in precision="fp64", where '
                "the weights tell",
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
                NOT_JUDGED_ROUNDING,
                Severity.NOTE,
                f"on another number of processes the final weights differ by {apart.largest:.1e}; in this precision "
                "that may be rounding or a fault",
                why="sums over other parts of a batch are rounded differently, and an optimizer amplifies this",
                fix="train in fp64, without dropout and BatchNorm: there rounding is at most 1e-9; a script has "
                'rankup.init(precision="fp64"), a workload of rankup takes --precision fp64',
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
            fix="for a loss that is not a mean over samples (but over tokens, nodes, pixels) use "
            "run.backward(loss, count=…), see docs/how-to/losses.md; turn off dropout and BatchNorm, which depend on "
            "how a batch is divided; do not let a sample's loss depend on the others of its batch, as by padding that "
            "the model sees, nor on the rank or the number of processes",
        ),
    )
