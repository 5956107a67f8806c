"""The proof: train uninterrupted, twice; train with kills and resumes; train on other numbers of processes; compare."""

from __future__ import annotations

import contextlib
from dataclasses import replace
from random import Random

from rankup.errors import RankupError
from rankup.findings.finding import Finding
from rankup.verify import any_script
from rankup.verify.attempts import AttemptFailed, Attempts, ProofStopped, too_long
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
from rankup.verify.files import Digests, ScriptFiles, other_aside, other_files, other_numbers
from rankup.verify.first_difference import (
    UNTRACKED,
    compared,
    first_difference,
    not_finite_from,
    other_end,
    unsteady,
)
from rankup.verify.interruptions import left_out
from rankup.verify.other_worlds import OtherWorlds
from rankup.verify.plan import WORDS, Course, choose_kills, crossed, last_saves, offered, too_short
from rankup.verify.repetition import not_deterministic
from rankup.verify.scenario import Reference, Scenario, Trial, VerifyPlan
from rankup.verify.times import without_times
from rankup.verify.trace_reader import AttemptTrace
from rankup.verify.two_files import RESUMED, UNINTERRUPTED


def verify(attempts: Attempts, plan: VerifyPlan, *, python: str) -> Proof:
    """Run all scenarios. If two uninterrupted trainings differ, the later scenarios prove nothing and are left out. The
    files that the script writes are put back after each.

    A signal from outside ends it: then it is of the interruptions before that.

    Raises RankupError if an attempt fails by itself, or is stopped from outside before any was resumed.
    """
    with ScriptFiles(attempts.folder, python) as files:
        trial = Trial(attempts, plan, files, python)
        if plan.shorten:
            plan = replace(plan, steps=any_script.second_save(trial))
            trial = replace(trial, plan=plan)
        first = trial.uninterrupted("uninterrupted")
        if plan.budget is not None and 2 * attempts.seconds > plan.budget:
            raise too_long(2 * attempts.seconds, "two starts", plan.budget)
        if first.any_script and (plan.worlds or plan.epoch_steps is not None):
            raise RankupError(
                "needs-run-steps",
                "--quick and --world need a script that loops over run.steps(…) or run.epochs(…)",
                hint="use --shorten, or shorten this script by its own options",
            )
        wrote = files.after_training(UNINTERRUPTED)
        again = trial.uninterrupted("uninterrupted, once more")
        reference = Reference(first, again, (wrote, files.after_training()), unsteady(first, again))
        proof = (_of_script if first.any_script else _of_run)(trial, reference)
        stopped = attempts.stopped
        if stopped is None:
            return proof
        if not proof.positions:
            raise stopped
        return replace(
            proof, not_crossed=(f"all that follows, {stopped.message}", *proof.not_crossed), stopped=stopped
        )


def _of_run(trial: Trial, reference: Reference) -> Proof:
    plan, first, again = trial.plan, reference.first, reference.again
    row = reference.repeated(plan, of_reference)
    scenarios = [replace(row, not_compared=tuple(sorted(reference.ignore)))]
    # Unregistered state that begins again in each epoch is not compared, nor what is made within the loop: that follows
    # from what is compared.
    resets = renewed(first)
    ours = {UNTRACKED + name for name in resets} | born_later(first)
    reference = replace(reference, ignore=reference.ignore | ours)
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
        scenario, made, positions, aside = _killed(trial, course, reference, random)
        scenarios.append(scenario)
        seen = crossed(made, to_the_end=plan.steps is None)
    if plan.worlds and trial.attempts.stopped is None:
        others = OtherWorlds(trial, first, reference.ignore)
        with contextlib.suppress(ProofStopped):  # ``Attempts.stopped`` says why
            scenarios.append(others.continued(random))
            trial.files.put_back()
            if scenarios[-1].same:
                for whole in others.whole():
                    scenarios.append(whole)
                    trial.files.put_back()
    notes = [too_short(course)] if "epoch" not in wanted else []
    notes += reference.file_notes(aside)
    if logged := sorted({name for s in scenarios if s.distance is not None for name in s.distance.logged}):
        notes.append(
            f"on other numbers of processes the script logs other numbers: {', '.join(logged)}. Rank 0 logs what it "
            "has: for the mean over all ranks' samples use run.mean, run.sum or run.meter"
        )
    if resets:
        notes.append(
            f"not compared, because it starts again in every epoch: {', '.join(map(held, resets))}. It is not "
            "registered: in the epoch of a resume it counts only the steps after the resume"
        )
    not_crossed = [WORDS[name] for name in wanted if name not in seen]
    given = [f"--{name} {n}" for name, n in (("kills", plan.kills), ("steps", plan.steps)) if n is not None]
    if not_crossed and given:
        notes.append(_for_a_proof(" and ".join(given)))
    if (lost := not_finite_from(first)) is not None:
        not_crossed.append(f"steps after step {lost}: the weights are NaN or infinite, and so are all others")
    return Proof(
        tuple(scenarios),
        tuple(WORDS[name] for name in seen),
        tuple(not_crossed),
        tuple(dict.fromkeys(line for attempt in (first, again, *made) for line in attempt.lost)),
        tuple(notes),
        plan.epoch_steps,
        positions=tuple(positions),
    )


def _of_script(trial: Trial, reference: Reference) -> Proof:
    """Of a script without ``run.steps``, which saves by itself."""
    plan, first = trial.plan, reference.first
    scenarios = [reference.repeated(plan, not_deterministic)]
    notes: list[str] = []
    positions: list[Position] = []
    aside: list[str] = []
    cut = plan.steps if first.final_step == plan.steps else None
    if scenarios[0].same and plan.kills != 0:
        rows, notes, positions, aside = any_script.killed(trial, reference)
        scenarios += rows
    notes += reference.file_notes(aside)
    if cut:
        notes.append(
            f"shortened: each training ended after step {cut}, as by sys.exit(). Not proved: what follows this "
            "step (later steps, the evaluation and the saves after its loop, its last lines)"
        )
    elif plan.shorten:
        notes.append(
            "not shortened: the script ends within three steps after its second save, or saves less often"
        )
    not_crossed = left_out(first, plan.kills, shortened=cut is not None)
    if not_crossed and all(scenario.same for scenario in scenarios):
        notes.append(_for_a_proof(f"--kills {plan.kills}"))
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


def _for_a_proof(options: str) -> str:
    return f"for a proof leave out {options}: then each kind of kill that applies to the script is tried, to its end"


def _killed(
    trial: Trial, course: Course, reference: Reference, random: Random
) -> tuple[Scenario, list[AttemptTrace], list[Position], list[str]]:
    """Kill and resume, several times; then train to the end. The last of four: what only differs aside in files."""
    plan, before = trial.plan, trial.attempts.count
    kills = choose_kills(random, course, len(course.kinds()) if plan.kills is None else plan.kills)
    trial.attempts.announce(len(kills))
    snapshots = "snapshots-of-the-killed"
    made: list[AttemptTrace] = []
    tried: list[str] = []
    killed_by: list[tuple[str, int]] = []  # what killed an attempt, and how many were made by then
    ended = False
    failure: Finding | None = None
    try:
        for kill in kills:
            what = f"to be killed {kill.text}"
            end = trial.run_twice(trial.ask(what, snapshots, saves=kill.saves, interrupt=kill.interrupt))
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
            saves = last_saves(random, course, kills)
            made += trial.to_the_end(trial.ask("to its end", snapshots, saves=saves))
    except ProofStopped:
        pass  # ``Attempts.stopped`` says why
    except AttemptFailed as error:
        failure = of_failure(error, f"killed {tried[-1]}" if tried else "")
    wrote = trial.files.after_training(RESUMED)
    finding = _of_steps(reference, made) or failure
    times: tuple[str, ...] = ()
    if finding is None and trial.attempts.stopped is None:
        finding = _of_end_of_steps(reference, made)
        if finding is None:
            reference, times = without_times(trial, reference, made[-1], wrote)
            finding = _of_what_it_wrote(trial, reference, made, wrote)
    count, steps = trial.attempts.count - before, compared(reference.first, made)
    scenario = Scenario.judged("killed and resumed", plan, count, steps, finding, tried)
    scenario = replace(scenario, not_compared=times)
    positions = [_position(text, *made[n - 1 : n + 1]) for text, n in killed_by if n < len(made)]
    return scenario, made, positions, other_aside(*reference.files, wrote) if finding is None else []


def _position(text: str, before: AttemptTrace, after: AttemptTrace) -> Position:
    lost = before.last - after.resumed_at
    again = f"trained {lost} step{'s' * (lost != 1)} again" if lost > 0 else "trained no step twice"
    words = f"killed {text}, went on after step {after.resumed_at}: {again}"
    return Position(text, before.last, after.resumed_at, words)


def _of_steps(reference: Reference, made: list[AttemptTrace]) -> Finding | None:
    difference = first_difference(reference.first, made, ignore=reference.ignore)
    if difference is None:
        return None
    return of_resume(reference.first, made[difference.attempt - 1], difference, reference.again)


def _of_end_of_steps(reference: Reference, made: list[AttemptTrace]) -> Finding | None:
    first = reference.first
    if (end := other_end(first, made)) is not None:
        return of_end(first, made[end[0] - 1], reference.again)
    if names := never_restored(first, made, reference.ignore):
        return of_untracked(first, names)
    return None


def _of_what_it_wrote(
    trial: Trial, reference: Reference, made: list[AttemptTrace], wrote: Digests
) -> Finding | None:
    first, again, files = reference.first, reference.again, (*reference.files, wrote)
    # Between two steps the script's variables show most.
    resumed = max(made, key=lambda attempt: (bool(attempt.steps), attempt.resumed_at))
    if paths := other_files(*files):
        return of_files(paths, first, resumed, again, trial.files.two_of(*files))
    if lines := other_numbers(first.printed, again.printed, made[-1].printed):
        return of_printed(lines, first, resumed, again)
    return None
