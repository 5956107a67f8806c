"""The proof of a script that does not use ``run.steps``, unchanged: does it go on as if nobody had killed it?

The script saves by itself, when it likes; so it is killed after steps that follow one of its saves. It is started again
as its user would: by the same command, or with ``--resume-args``. Its traces have steps of its optimizers
(``runtime/tracing/any_script.py``), each placed among those of the uninterrupted training by the weights with which it
began.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from rankup.errors import RankupError
from rankup.findings.finding import Confidence, Finding, Severity
from rankup.verify.conclusion import NOT_JUDGED, Position
from rankup.verify.diagnosis import of_end, of_files, of_printed
from rankup.verify.files import Digests, other_aside, other_files, other_numbers
from rankup.verify.first_difference import (
    UNTRACKED,
    Difference,
    compared,
    first_difference,
    other_end,
    pairs,
    unsteady,
)
from rankup.verify.interrupted import Interrupted, interrupt
from rankup.verify.resumes import Resume, samples_of_resume
from rankup.verify.scenario import Reference, Scenario, Trial
from rankup.verify.script_causes import ROUNDING, SAVE_UNTRAINED, UNTRAINED, after_rounding, likeliest
from rankup.verify.script_pair import Pair
from rankup.verify.times import without_times
from rankup.verify.trace_reader import AttemptTrace
from rankup.verify.two_files import RESUMED


def second_save(trial: Trial) -> int | None:
    """The step to which a training is cut, so that two of its saves and kills after them lie within; None if it ends
    before. One attempt finds it."""
    ranks = ";".join(f"saves 2 {rank}" for rank in range(trial.plan.processes))
    ask = trial.ask("until its second save", "no-snapshots", interrupt=ranks)
    end = trial.attempts.run(replace(ask, steps=None))
    trial.files.put_back()
    if end.attempt is not None and not end.attempt.any_script:
        raise RankupError(
            "has-run-steps",
            "--shorten is for a script without run.steps(…) and run.epochs(…)",
            hint="use --quick, or --steps N",
        )
    return end.attempt.last if end.attempt is not None and end.killed else None


def killed(trial: Trial, reference: Reference) -> tuple[list[Scenario], list[str], list[Position], list[str]]:
    """Interrupt and start again, several times; then to the end. The rows, notes, where each resume went on, and what
    only differs aside in files."""
    before, first = trial.attempts.count, reference.first
    course = interrupt(trial, first)
    wrote = trial.files.after_training(RESUMED)
    reference, times, finding = _of_course(trial, reference, course, wrote)
    if finding is not None and finding.code == TWO_SAVES and trial.attempts.stopped is None:
        # What a script forgets shows after this kill as after all others.
        plain = interrupt(trial, first, without="between")
        *_, other = _of_course(trial, reference, plain, trial.files.after_training())
        finding = other if other is not None and other.code != ROUNDING else finding
    count = trial.attempts.count - before
    steps = compared(first, [resume.attempt for resume in course.resumes])
    row = Scenario.judged("killed and started again", trial.plan, count, steps, finding, course.tried)
    row = replace(row, not_compared=times)
    if finding is not None and finding.code in _VERDICTS:
        row = replace(row, verdict=_VERDICTS[finding.code], same=finding.code == ROUNDING)
    rows = [row]
    if (cut := course.half_written) is not None:
        # Before the row that decides the conclusion.
        rows.insert(0, Scenario("killed in a save", str(trial.plan.processes), 2, 1, 0, "fails", False, cut))
    notes = []
    if course.not_reached:
        notes.append(f"not reached, because the training had ended: {'; '.join(course.not_reached)}")
    positions = [_position(first, resume) for resume in course.resumes]
    positions += [Position(each, first.final_step, None, f"{each}: no step was left") for each in course.done]
    return rows, notes, positions, other_aside(*reference.files, wrote) if finding is None else []


def _of_course(
    trial: Trial, reference: Reference, course: Interrupted, wrote: Digests
) -> tuple[Reference, tuple[str, ...], Finding | None]:
    """What differs, with the reference beside which times are no difference, and what is not compared for that
    reason."""
    finding = _of_resumes(reference.first, reference.again, course.resumes)
    times: tuple[str, ...] = ()
    if trial.attempts.stopped is None:
        finding = _of_end_of_steps(reference, course.resumes, course.failure, finding)
        if finding is None:
            last = course.resumes[-1].attempt
            reference, times = without_times(trial, reference, last, wrote)
            finding = _of_what_it_wrote(trial, reference, course.resumes, wrote)
    return reference, times, finding


def _position(first: AttemptTrace, resume: Resume) -> Position:
    known = None if resume.again is None else resume.attempt.resumed_at
    samples = samples_of_resume(first, resume)
    return Position(resume.interruption.kind, resume.killed_at, known, resume.position, samples)


# ------------------------------------------------------------------------ what differs

TWO_SAVES = "files-of-two-saves"
_VERDICTS = {"no-checkpoint": NOT_JUDGED, "begins-again": NOT_JUDGED, ROUNDING: "equal within rounding"}


def _of_resumes(first: AttemptTrace, again: AttemptTrace, resumes: Sequence[Resume]) -> Finding | None:
    """What differs in the steps after a resume."""
    found: Finding | None = None
    # A generator that nothing depends on is no difference of the training: ``CAUSES`` asks for it.
    generators = frozenset(
        f"{UNTRACKED}{name}"
        for ranks in first.steps.values()
        for record in ranks.values()
        for name in record["untracked"]
    )
    for resume in resumes:
        difference = first_difference(first, [resume.attempt], ignore=generators)
        if difference is not None or resume.attempt.restored == "nothing":
            found = _of_resume(first, again, resume, difference, rounded=found)
            if found is not None and found.code != ROUNDING:
                break  # those that follow differ for the same reason
    return found


def _of_end_of_steps(
    reference: Reference, resumes: Sequence[Resume], failure: Finding | None, found: Finding | None
) -> Finding | None:
    """``found``: what differs in the steps; without it, or beside rounding, what differs at their end."""
    if found is not None and found.code != ROUNDING:
        return found
    made = [resume.attempt for resume in resumes]
    later = failure or _of_end(reference.first, reference.again, made)
    if later is None and all(resume.begins_again for resume in resumes):
        later = _no_resume(reference.first, resumes)
    return later or found


def _of_what_it_wrote(
    trial: Trial, reference: Reference, resumes: Sequence[Resume], wrote: Digests
) -> Finding | None:
    first, again, files = reference.first, reference.again, (*reference.files, wrote)
    last = resumes[-1].attempt
    if paths := other_files(*files):
        found = of_files(paths, first, last, again, trial.files.two_of(*files))
        for resume in resumes:
            if (late := resume.interruption.file) and any(late in path for path in paths):
                return _two_saves(resume, found.message, "")
    elif lines := other_numbers(first.printed, again.printed, last.printed):
        found = of_printed(lines, first, last, again)
    else:
        return None
    return _of_untrained(first, resumes, found) or found


def _two_saves(resume: Resume, what: str, place: str) -> Finding:
    return Finding(
        TWO_SAVES,
        Severity.ERROR,
        f"after a kill between two files of one save the script goes on otherwise: {what}",
        place=place,
        why=f"two uninterrupted runs are equal; {resume.position}",
        fix="write into one file what belongs together, and rename it; or write last the file that says where to go "
        "on, if others that are newer do not change the training",
        confidence=Confidence.LIKELY,
    )


def _of_untrained(first: AttemptTrace, resumes: Sequence[Resume], result: Finding) -> Finding | None:
    """Why a result differs, although no step does: weights that no step needs, such as an average."""
    for resume in resumes:
        for step, _, mine, theirs in pairs(first, resume.attempt):
            if mine["before"]["untrained"] == theirs["before"]["untrained"]:
                continue
            if step > resume.attempt.resumed_at + 1:
                return None  # it was restored, and went on otherwise
            return Finding(
                UNTRAINED,
                Severity.ERROR,
                "weights that no optimizer steps are others, and no step depends on them: an average (EMA)",
                place=f"step {step}",
                why=f"{resume.position}; {result.message}",
                fix=SAVE_UNTRAINED,
                confidence=Confidence.LIKELY,
            )
    return None


def _of_end(first: AttemptTrace, again: AttemptTrace, made: Sequence[AttemptTrace]) -> Finding | None:
    end = other_end(first, made)
    if end is None:
        return None
    attempt = made[end[0] - 1]
    if attempt.resumed_at == 0 and attempt.final_step < first.final_step:
        return Finding(
            "weights-not-restored",
            Severity.ERROR,
            "the script goes on with the weights of its beginning",
            why=f"started again it trains {attempt.final_step} steps, and not {first.final_step}: so it has restored "
            "its position",
            fix="load the model's state, too",
            confidence=Confidence.LIKELY,
        )
    return of_end(first, attempt, again)


def _no_resume(first: AttemptTrace, resumes: Sequence[Resume]) -> Finding:
    starts = ", ".join(str(resume.killed_at) for resume in resumes)
    why = (
        f"killed after steps {starts}, it began each time with the weights of the first step"
        if starts
        else ""
    )
    if not any(resume.saved_at is not None for resume in resumes):
        return Finding(
            "no-checkpoint",
            Severity.ERROR,
            "there was no checkpoint to go on from",
            why=why or "no attempt trained a step after a kill",
            fix="save the model, the optimizer, the schedule and the generators every few minutes, and load them; for "
            "this proof let the script save more often",
        )
    return Finding(
        "begins-again",
        Severity.ERROR,
        "the script saves, and does not go on from what it has saved",
        why=why,
        fix="give verify what its user would type: --resume-args '--resume {last}' --checkpoint 'out/*.pt'",
    )


def _of_resume(
    first: AttemptTrace,
    again: AttemptTrace,
    resume: Resume,
    difference: Difference | None,
    rounded: Finding | None = None,
) -> Finding:
    """What the resume has not restored. ``rounded``: an earlier one differs in the last digits, and so its steps do,
    too."""
    attempt = resume.attempt
    why = f"two uninterrupted runs are equal; {resume.position}"
    step = attempt.resumed_at + 1 if difference is None else difference.step
    ignore = unsteady(first, again)
    every = [
        Pair(first, attempt, at, mine, theirs, ignore, rank, resume.saved_at)
        for at, rank, mine, theirs in pairs(first, attempt)
    ]
    both = [pair for pair in every if pair.step == step]
    if not both or (difference is not None and difference.at_end):
        return Finding(
            "other-end-state",
            Severity.ERROR,
            "the script ends with another state, after equal steps",
            place=f"after step {step}",
            why=why,
            fix="what the code after the loop depends on is not saved",
            confidence=Confidence.LIKELY,
        )
    if rounded is not None and attempt.restored == "state":
        more = after_rounding(every)
        if more is None:
            return rounded
        pair, cause, message = more
    else:
        pair, cause, message = likeliest(both, [pair for pair in every if pair.step > step and pair.begins])
        if cause.code == ROUNDING:
            after = [pair for pair in every if pair.step > step]
            pair, cause, message = after_rounding(after) or (pair, cause, message)
    place = f"step {pair.step}" + (f", rank {pair.rank}" if first.world_size > 1 else "")
    if resume.interruption.file and cause.code != ROUNDING:
        return _two_saves(resume, message, place)
    return Finding(
        cause.code,
        Severity.NOTE if cause.code == ROUNDING else Severity.ERROR,
        message,
        place=place,
        why=f"{why}; the step is number {pair.step - attempt.resumed_at} after it",
        fix=cause.fix,
        confidence=Confidence.LIKELY,
    )
