"""The proof: an uninterrupted training, twice; one that is killed and resumed; one on other numbers of processes."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random

from rankup.core.findings import Finding, Severity
from rankup.errors import RankupError
from rankup.verify.attempts import AT_THE_END, Ask, Attempts
from rankup.verify.cause import of_reference, of_resume, what
from rankup.verify.compare import (
    Difference,
    compared,
    first_difference,
    over_ranks,
    same_samples,
    unsteady,
)
from rankup.verify.plan import choose_kill, choose_stops, kinds
from rankup.verify.recorded import Attempt
from rankup.verify.values import FP64_TOLERANCE, Distance, distance


@dataclass(frozen=True)
class Plan:
    """``steps`` None: to the training's end. ``worlds``: numbers of processes, one after another; empty: no such
    scenario. ``seed`` chooses where to interrupt."""

    processes: int
    kills: int
    worlds: tuple[int, ...] = ()
    steps: int | None = None
    seed: int = 0


@dataclass(frozen=True)
class Scenario:
    """One row: what was done, and what the comparison with the uninterrupted training says of it."""

    what: str
    processes: str
    attempts: int
    kills: int
    steps_compared: int
    verdict: str
    proved: bool
    finding: Finding | None = None
    distance: Distance | None = None
    not_compared: tuple[str, ...] = ()  # differs without any interruption, as a clock does


def verify(attempts: Attempts, plan: Plan, *, python: str) -> list[Scenario]:
    """Run all scenarios; the later ones say nothing where two uninterrupted trainings differ, and are left out.

    Raises RankupError where an attempt fails by itself.
    """
    first = attempts.run(_uninterrupted(attempts, plan, "uninterrupted"))[0]
    again = attempts.run(_uninterrupted(attempts, plan, "uninterrupted, once more"))[0]
    assert first is not None and again is not None  # only a killed one may be
    ignore = unsteady(first, again)
    scenarios = [_reference(first, again, plan, ignore)]
    if not scenarios[0].proved:
        return scenarios
    random = Random(plan.seed)
    if plan.kills:
        scenarios.append(_killed(attempts, plan, first, random, ignore))
    if plan.worlds:
        scenarios.append(_other_worlds(attempts, plan, first, random, python))
    return scenarios


def _uninterrupted(attempts: Attempts, plan: Plan, what: str) -> Ask:
    snapshots = attempts.folder / f"snapshots-of-{what.replace(', ', '-').replace(' ', '-')}"
    return Ask(what, plan.processes, snapshots, AT_THE_END, plan.steps)


def _reference(first: Attempt, again: Attempt, plan: Plan, ignore: frozenset[str]) -> Scenario:
    difference = first_difference(first, [again], ignore=ignore)
    return Scenario(
        "uninterrupted, twice",
        str(plan.processes),
        2,
        0,
        compared(first, [again]),
        "differs" if difference else "identical",
        difference is None,
        of_reference(first, again, difference) if difference else None,
        not_compared=tuple(sorted(ignore)),
    )


def _killed(
    attempts: Attempts, plan: Plan, reference: Attempt, random: Random, ignore: frozenset[str]
) -> Scenario:
    """Kill, resume, and so on; then once to the end."""
    snapshots = attempts.folder / "snapshots-of-the-killed"
    every = f"{max(1, reference.last // (3 * (plan.kills + 1)))} steps"
    made: list[Attempt] = []
    kills = started = reached = 0
    for number, kind in enumerate([*kinds(random, plan.kills), ""]):
        kill = choose_kill(
            random,
            kind,
            left=max(1, plan.kills - number),
            steps_left=reference.last - reached,
            processes=plan.processes,
            step_s=_seconds_per_step(reference),
        )
        what = f"to be killed {kill.said}" if kind else "to its end"
        attempt, killed = attempts.run(
            Ask(what, plan.processes, snapshots, every, plan.steps, kill.words if kind else "")
        )
        started, kills = started + 1, kills + killed
        if attempt is not None:
            made.append(attempt)
            reached = max(reached, attempt.last)
        if not killed:
            break  # ended before the kill's time came, or the last one
    difference = first_difference(reference, made, ignore=ignore)
    return Scenario(
        "killed and resumed",
        str(plan.processes),
        started,
        kills,
        compared(reference, made),
        "differs" if difference else "identical",
        difference is None,
        of_resume(reference, made[difference.attempt - 1], difference) if difference else None,
    )


def _seconds_per_step(reference: Attempt) -> float:
    times = [ranks[0]["time"] for ranks in reference.steps.values() if 0 in ranks]
    return float(max(times) - min(times)) / max(1, len(times) - 1)


def _other_worlds(
    attempts: Attempts, plan: Plan, reference: Attempt, random: Random, python: str
) -> Scenario:
    """Stop after a step by chance, go on with the next number of processes, and compare what they end with."""
    if reference.last < len(plan.worlds):
        raise RankupError(
            "too-few-steps",
            f"{reference.last} steps cannot be shared by {len(plan.worlds)} numbers of processes",
            hint="more --steps, or a shorter --world",
        )
    snapshots = attempts.folder / "snapshots-of-other-worlds"
    stops: list[int | None] = [*choose_stops(random, reference.last, len(plan.worlds)), plan.steps]
    made = []
    for processes, step in zip(plan.worlds, stops, strict=True):
        what = f"to be stopped after step {step}" if step is not plan.steps else "to its end"
        attempt, _ = attempts.run(Ask(what, processes, snapshots, AT_THE_END, step))
        assert attempt is not None  # it was not killed
        made.append(attempt)
    said = [same_samples(reference, attempt) for attempt in made]
    apart = distance(attempts.folder / "snapshots-of-uninterrupted", snapshots, python)
    if reference.any_world:
        shards = [over_ranks(attempt) for attempt in made]
        verdict, proved, finding = judge_any_world(apart, first_difference(over_ranks(reference), shards))
    else:
        verdict, proved, finding = judge_worlds(apart, all(said))
    steps = compared(reference, made)
    return Scenario(
        "stopped, other processes",
        "→".join(map(str, plan.worlds)),
        len(made),
        0,
        steps,
        verdict,
        proved,
        finding,
        apart,
    )


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
