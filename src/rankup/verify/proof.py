"""The proof: train uninterrupted, twice; train with kills and resumes; train on other numbers of processes; compare."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from random import Random

from rankup.errors import RankupError
from rankup.findings.finding import Finding
from rankup.verify import any_script
from rankup.verify.attempts import AttemptFailed, Attempts, AttemptSpec, too_long
from rankup.verify.causes import held
from rankup.verify.conclusion import Position, Proof
from rankup.verify.diagnosis import (
    of_end,
    of_failure,
    of_files,
    of_printed,
    of_reference,
    of_resume,
    of_untracked,
)
from rankup.verify.evidence import born_later, never_restored, renewed
from rankup.verify.files import (
    ASIDE_NOTE,
    Digests,
    ScriptFiles,
    clocklike,
    other_aside,
    other_files,
    other_numbers,
    short,
    too_large,
    whole_files,
)
from rankup.verify.first_difference import (
    UNTRACKED,
    compared,
    first_difference,
    not_finite_from,
    other_end,
    unsteady,
)
from rankup.verify.other_worlds import OtherWorlds
from rankup.verify.plan import WORDS, Course, choose_kills, crossed, last_saves, offered, too_short
from rankup.verify.repetition import not_deterministic
from rankup.verify.scenario import Scenario, VerifyPlan, not_ended, repeated, run_twice, to_the_end
from rankup.verify.trace_reader import AttemptTrace


@dataclass(frozen=True)
class Reference:
    """Two uninterrupted trainings, what each left in the files that it wrote, and the state that is not compared."""

    first: AttemptTrace
    again: AttemptTrace
    files: Digests
    files_again: Digests
    ignore: frozenset[str]

    def without(self, resets: Sequence[str]) -> Reference:
        """``resets``: unregistered state that begins again in each epoch. What is made within the loop is left out with
        it: it follows from what is compared."""
        ours = {UNTRACKED + name for name in resets} | born_later(self.first)
        return replace(self, ignore=self.ignore | ours)


def verify(attempts: Attempts, plan: VerifyPlan, *, python: str) -> Proof:
    """Run all scenarios. If two uninterrupted trainings differ, the later scenarios prove nothing and are left out. The
    files that the script writes are put back after each.

    Raises RankupError if an attempt fails by itself, or is stopped from outside.
    """
    with ScriptFiles(attempts.folder, python) as files:
        return _verify(attempts, plan, python, files)


def _verify(attempts: Attempts, plan: VerifyPlan, python: str, files: ScriptFiles) -> Proof:
    if plan.shorten:
        plan = replace(plan, steps=any_script.second_save(attempts, plan, files))
    first = _uninterrupted(attempts, plan, "uninterrupted")
    if plan.budget is not None and 2 * attempts.seconds > plan.budget:
        raise too_long(2 * attempts.seconds, "two starts", plan.budget)
    wrote = files.after_training()
    if first.any_script:
        return _verify_script(attempts, plan, first, wrote, files)
    again = _uninterrupted(attempts, plan, "uninterrupted, once more")
    reference = Reference(first, again, wrote, files.after_training(), unsteady(first, again))
    row = repeated(first, again, plan, reference.ignore, of_reference)
    scenarios = [replace(row, not_compared=tuple(sorted(reference.ignore)))]
    resets = renewed(first)
    reference = reference.without(resets)
    course = Course.of(first, plan.kinds)
    wanted = offered(course)
    if not scenarios[0].same:
        return Proof(tuple(scenarios), not_crossed=tuple(WORDS[name] for name in wanted))
    random = Random(plan.seed)
    seen: list[str] = []
    made: list[AttemptTrace] = []
    positions: list[Position] = []
    aside: list[str] = []
    if plan.kills != 0:
        scenario, made, positions, aside = _killed(attempts, plan, course, reference, random, files)
        scenarios.append(scenario)
        seen = crossed(made, to_the_end=plan.steps is None)
    if plan.worlds:
        others = OtherWorlds(attempts, plan, first, python, reference.ignore)
        scenarios.append(others.continued(random))
        files.put_back()
        if scenarios[-1].same:
            for whole in others.whole():
                scenarios.append(whole)
                files.put_back()
    not_crossed = [WORDS[name] for name in wanted if name not in seen]
    if (lost := not_finite_from(first)) is not None:
        not_crossed.append(f"steps after step {lost}: the weights are NaN or infinite, and so are all others")
    return Proof(
        tuple(scenarios),
        tuple(WORDS[name] for name in seen),
        tuple(not_crossed),
        tuple(dict.fromkeys(line for attempt in (first, again, *made) for line in attempt.lost)),
        tuple(_notes(course, wanted, resets, reference, aside, _logged_otherwise(scenarios))),
        plan.epoch_steps,
        positions=tuple(positions),
    )


def _verify_script(
    attempts: Attempts, plan: VerifyPlan, first: AttemptTrace, wrote: Digests, files: ScriptFiles
) -> Proof:
    """Of a script without ``run.steps``, which saves by itself."""
    if plan.worlds or plan.epoch_steps is not None:
        raise RankupError(
            "needs-run-steps",
            "--quick and --world need a script that loops over run.steps(…) or run.epochs(…)",
            hint="use --shorten, or shorten this script by its own options",
        )
    again = _uninterrupted(attempts, plan, "uninterrupted, once more")
    twice = (wrote, files.after_training())
    scenarios = [repeated(first, again, plan, unsteady(first, again), not_deterministic)]
    notes: list[str] = []
    positions: list[Position] = []
    cut = plan.steps if first.final_step == plan.steps else None
    if scenarios[0].same and plan.kills != 0:
        rows, notes, positions = any_script.killed(attempts, plan, first, again, files, twice)
        scenarios += rows
    if paths := too_large(wrote):
        notes.append(f"too large to be compared: {short(paths)}")
    if paths := whole_files(wrote):
        notes.append(f"files that the script writes, put back as they were: {short(paths)}")
    if cut:
        notes.append(
            f"shortened: each training ended after step {cut}, as by sys.exit(). Not proved: what follows this "
            "step (later steps, the evaluation and the saves after its loop, its last lines)"
        )
    elif plan.shorten:
        notes.append(
            "not shortened: the script ends within three steps after its second save, or saves less often"
        )
    not_crossed = ["a resume, with --kills 0"] if plan.kills == 0 else []
    if (lost := not_finite_from(first)) is not None:
        not_crossed.append(
            f"steps after step {lost}: the gradients are NaN or infinite, and the weights become so"
        )
    return Proof(
        tuple(scenarios),
        not_crossed=tuple(not_crossed),
        notes=tuple(notes),
        last_step=cut,
        positions=tuple(positions),
        any_script=True,
    )


def _logged_otherwise(scenarios: Sequence[Scenario]) -> list[str]:
    """The logged numbers that are others on other numbers of processes."""
    return sorted({name for s in scenarios if s.distance is not None for name in s.distance.logged})


def _notes(
    course: Course,
    wanted: list[str],
    resets: list[str],
    reference: Reference,
    aside: list[str],
    logged: list[str],
) -> list[str]:
    notes = [too_short(course)] if "epoch" not in wanted else []
    if paths := whole_files(reference.files):
        notes.append(f"files that the script writes, compared and put back as they were: {short(paths)}")
    if paths := too_large(reference.files):
        notes.append(f"too large to be compared: {short(paths)}")
    if paths := clocklike(reference.files, reference.files_again):
        notes.append(f"not compared, because two uninterrupted runs write them differently: {short(paths)}")
    if aside:
        notes.append(ASIDE_NOTE + short(aside))
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


def _killed(
    attempts: Attempts,
    plan: VerifyPlan,
    course: Course,
    reference: Reference,
    random: Random,
    files: ScriptFiles,
) -> tuple[Scenario, list[AttemptTrace], list[Position], list[str]]:
    """Kill and resume, several times; then train to the end. The last of four: what only differs aside in files."""
    count = len(course.kinds()) if plan.kills is None else plan.kills
    kills = choose_kills(random, course, count)
    snapshots = attempts.folder / "snapshots-of-the-killed"
    made: list[AttemptTrace] = []
    tried: list[str] = []
    killed_by: list[tuple[str, int]] = []  # what killed an attempt, and how many were made by then
    ended = False
    before = attempts.count
    failure: Finding | None = None
    try:
        for kill in kills:
            ask = AttemptSpec(
                f"to be killed {kill.text}", plan.processes, snapshots, plan.steps, kill.saves, kill.interrupt
            )
            end = run_twice(attempts, ask)
            if end.killed:
                tried.append(kill.text)
            if end.attempt is not None:
                made.append(end.attempt)
                if end.killed:
                    killed_by.append((kill.text, len(made)))
            if not end.killed and not end.stopped:  # it ended before the kill
                ended = True
                break
        if not ended:
            made += to_the_end(attempts, plan, plan.processes, snapshots, last_saves(random, course, kills))
    except AttemptFailed as error:
        failure = of_failure(error)
    written = files.after_training()
    finding = _what_differs(reference, made, written, failure)
    aside = [] if finding else other_aside(reference.files, reference.files_again, written)
    count, steps = attempts.count - before, compared(reference.first, made)
    scenario = Scenario.judged("killed and resumed", plan, count, steps, finding, tried)
    positions = [_position(text, *made[n - 1 : n + 1]) for text, n in killed_by if n < len(made)]
    return scenario, made, positions, aside


def _position(text: str, before: AttemptTrace, after: AttemptTrace) -> Position:
    lost = before.last - after.resumed_at
    again = f"trained {lost} step{'s' * (lost != 1)} again" if lost > 0 else "trained no step twice"
    words = f"killed {text}, went on after step {after.resumed_at}: {again}"
    return Position(text, before.last, after.resumed_at, words)


def _what_differs(
    reference: Reference, made: list[AttemptTrace], files: Digests, failure: Finding | None
) -> Finding | None:
    """``failure``: why the last attempt failed, if it did: then only the steps before it tell more."""
    first, again, ignore = reference.first, reference.again, reference.ignore
    difference = first_difference(first, made, ignore=ignore)
    if difference is not None:
        return of_resume(first, made[difference.attempt - 1], difference, again)
    if failure is not None:
        return failure
    if (end := other_end(first, made)) is not None:
        return of_end(first, made[end[0] - 1], again)
    if names := never_restored(first, made, ignore):
        return of_untracked(first, names)
    # Between two steps the script's variables show most.
    resumed = max(made, key=lambda attempt: (bool(attempt.steps), attempt.resumed_at))
    if paths := other_files(reference.files, reference.files_again, files):
        return of_files(paths, first, resumed, again)
    if lines := other_numbers(first.printed, again.printed, made[-1].printed):
        return of_printed(lines, first, resumed, again)
    return None
