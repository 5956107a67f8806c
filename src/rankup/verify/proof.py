"""The proof: train uninterrupted, twice; train with kills and resumes; train on other numbers of processes; compare."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from random import Random

from rankup.findings.finding import Finding, in_order
from rankup.verify.attempts import Attempts, AttemptSpec
from rankup.verify.causes import held
from rankup.verify.crossings import WORDS, crossed, offered, too_short
from rankup.verify.diagnosis import of_end, of_reference, of_resume, of_untracked
from rankup.verify.first_difference import (
    UNTRACKED,
    compared,
    first_difference,
    not_finite_from,
    other_end,
    unsteady,
)
from rankup.verify.other_worlds import other_worlds, whole_worlds
from rankup.verify.plan import Course, choose_kills, last_saves
from rankup.verify.scenario import Scenario, VerifyPlan, not_ended, to_the_end
from rankup.verify.trace_reader import AttemptTrace
from rankup.verify.untracked import never_restored, renewed


@dataclass(frozen=True)
class Proof:
    """All scenarios, and what their interruptions crossed and did not cross (texts of ``crossings``). ``notes``: what
    only a longer training would show, and what is not compared."""

    scenarios: tuple[Scenario, ...]
    crossed: tuple[str, ...] = ()
    not_crossed: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def same(self) -> bool:
        """Whether no difference was found."""
        return all(scenario.same for scenario in self.scenarios)

    @property
    def findings(self) -> list[Finding]:
        """The findings of all scenarios, most severe first. The place of each begins with its scenario."""
        return in_order(
            replace(s.finding, place=", ".join(filter(None, (s.what, s.finding.place))))
            for s in self.scenarios
            if s.finding is not None
        )

    @property
    def proved(self) -> bool:
        return self.same and not self.not_crossed


def verify(attempts: Attempts, plan: VerifyPlan, *, python: str) -> Proof:
    """Run all scenarios. If two uninterrupted trainings differ, the later scenarios prove nothing and are left out.

    Raises RankupError if an attempt fails by itself, or is stopped from outside.
    """
    first, again = (
        _uninterrupted(attempts, plan, what) for what in ("uninterrupted", "uninterrupted, once more")
    )
    ignore = unsteady(first, again)
    scenarios = [_reference(first, again, plan, ignore)]
    if resets := renewed(first):
        ignore |= {UNTRACKED + name for name in resets}
    course = Course.of(first)
    wanted = offered(course)
    if not scenarios[0].same:
        return Proof(tuple(scenarios), not_crossed=tuple(WORDS[name] for name in wanted))
    random = Random(plan.seed)
    seen: list[str] = []
    if plan.kills != 0:
        scenario, made = _killed(attempts, plan, first, again, random, ignore)
        scenarios.append(scenario)
        seen = crossed(made, to_the_end=plan.steps is None)
    if plan.worlds:
        scenarios.append(other_worlds(attempts, plan, first, random, python, ignore))
        if scenarios[-1].same:
            scenarios += whole_worlds(attempts, plan, first, python, ignore)
    not_crossed = [WORDS[name] for name in wanted if name not in seen]
    if (lost := not_finite_from(first)) is not None:
        not_crossed.append(f"steps after step {lost}: the weights are NaN or infinite, and so are all others")
    return Proof(
        tuple(scenarios),
        tuple(WORDS[name] for name in seen),
        tuple(not_crossed),
        tuple(_notes(course, wanted, resets, _logged_otherwise(scenarios))),
    )


def _logged_otherwise(scenarios: Sequence[Scenario]) -> list[str]:
    """The logged numbers that are others on other numbers of processes."""
    return sorted({name for s in scenarios if s.distance is not None for name in s.distance.logged})


def _notes(course: Course, wanted: list[str], resets: list[str], logged: list[str]) -> list[str]:
    notes = [too_short(course)] if "epoch" not in wanted else []
    if logged:
        notes.append(
            f"on other numbers of processes the script logs other numbers: {', '.join(logged)}. Rank 0 logs what it "
            "has: for the mean over all ranks' samples use run.mean, run.sum or run.meter"
        )
    if resets:
        notes.append(
            f"not compared, because it starts again in every epoch: {', '.join(map(held, resets))}. It is not "
            "registered: in the epoch of a resume it counts only the steps after the resume"
        )
    return notes


def _uninterrupted(attempts: Attempts, plan: VerifyPlan, what: str) -> AttemptTrace:
    snapshots = attempts.folder / f"snapshots-of-{what.replace(', ', '-').replace(' ', '-')}"
    ended = attempts.run(AttemptSpec(what, plan.processes, snapshots, plan.steps))
    if ended.stopped:
        raise not_ended(f"the uninterrupted training was stopped ({ended.stopped})")
    assert ended.attempt is not None  # only a killed attempt may have no trace
    return ended.attempt


def _reference(
    first: AttemptTrace, again: AttemptTrace, plan: VerifyPlan, ignore: frozenset[str]
) -> Scenario:
    difference = first_difference(first, [again], ignore=ignore)
    finding = of_reference(first, again, difference) if difference else None
    if finding is None and other_end(first, [again]) is not None:
        finding = of_end(first, again, repeated=True)
    return Scenario(
        "uninterrupted, twice",
        str(plan.processes),
        2,
        0,
        compared(first, [again]),
        "differs" if finding else "identical",
        finding is None,
        finding,
        not_compared=tuple(sorted(ignore)),
    )


def _killed(
    attempts: Attempts,
    plan: VerifyPlan,
    reference: AttemptTrace,
    again: AttemptTrace,
    random: Random,
    ignore: frozenset[str],
) -> tuple[Scenario, list[AttemptTrace]]:
    """Kill and resume, several times; then train to the end."""
    course = Course.of(reference)
    count = len(course.kinds()) if plan.kills is None else plan.kills
    kills = choose_kills(random, course, count)
    snapshots = attempts.folder / "snapshots-of-the-killed"
    made: list[AttemptTrace] = []
    tried: list[str] = []
    ended = False
    for kill in kills:
        ask = AttemptSpec(
            f"to be killed {kill.text}", plan.processes, snapshots, plan.steps, kill.saves, kill.interrupt
        )
        end = attempts.run(ask)
        if end.killed:
            tried.append(kill.text)
        if end.attempt is not None:
            made.append(end.attempt)
        if not end.killed and not end.stopped:  # it ended before the kill
            ended = True
            break
    if not ended:
        made += to_the_end(attempts, plan, plan.processes, snapshots, last_saves(random, course, kills))
    finding = _what_differs(reference, again, made, ignore)
    scenario = Scenario(
        "killed and resumed",
        str(plan.processes),
        attempts.count - 2,
        len(tried),
        compared(reference, made),
        "differs" if finding else "identical",
        finding is None,
        finding,
        tried=tuple(tried),
    )
    return scenario, made


def _what_differs(
    reference: AttemptTrace, again: AttemptTrace, made: list[AttemptTrace], ignore: frozenset[str]
) -> Finding | None:
    difference = first_difference(reference, made, ignore=ignore)
    if difference is not None:
        return of_resume(reference, made[difference.attempt - 1], difference, again)
    if (end := other_end(reference, made)) is not None:
        return of_end(reference, made[end[0] - 1], again)
    if names := never_restored(reference, made, ignore):
        return of_untracked(reference, names)
    return None
