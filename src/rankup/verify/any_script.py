"""The proof of a script that does not use ``run.steps``, unchanged: does it go on as if nobody had killed it?

The script saves by itself, when it likes; so it is killed after steps that follow one of its saves. It is started again
as its user would: by the same command, or with ``--resume-args``. Its traces have steps of its optimizers
(``runtime/tracing/any_script.py``), each placed among those of the uninterrupted training by the weights with which it
began.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rankup.findings.finding import Confidence, Finding, Severity
from rankup.verify.attempts import AttemptEnd, AttemptFailed, Attempts, AttemptSpec
from rankup.verify.diagnosis import of_end, of_failure, of_files, of_printed
from rankup.verify.files import Digests, ScriptFiles, clocklike, other_files
from rankup.verify.first_difference import (
    INPUTS,
    LOSS,
    UNTRACKED,
    Difference,
    compared,
    first_difference,
    other_end,
    pairs,
    unsteady,
)
from rankup.verify.output import other_numbers
from rankup.verify.scenario import Scenario, VerifyPlan, run_twice
from rankup.verify.script_causes import ROUNDING, SAVE_UNTRAINED, UNTRAINED, after_rounding, likeliest
from rankup.verify.script_pair import Pair
from rankup.verify.trace_reader import AttemptTrace

_SAVES_TRIED = 3  # after which a kill follows
NOT_JUDGED = "not judged"


@dataclass(frozen=True)
class Resume:
    """One kill, and the attempt that followed. ``saved_at``: the last step before it after which the script saves."""

    killed_at: int
    saved_at: int | None
    attempt: AttemptTrace

    @property
    def position(self) -> str:
        """In words: where it went on, and what that cost."""
        lost, at = self.killed_at - self.attempt.resumed_at, self.attempt.resumed_at
        if self.attempt.restored == "nothing":
            return f"killed after step {self.killed_at}: went on with weights of no step before it"
        again = f"trained {lost} step{'s' * (lost != 1)} again" if lost else "trained no step twice"
        return f"killed after step {self.killed_at}, went on after step {at}: {again}"


def repeated(first: AttemptTrace, again: AttemptTrace, processes: int) -> Scenario:
    """Two uninterrupted trainings: are they the same?"""
    difference = first_difference(first, [again], ignore=unsteady(first, again))
    finding = _not_deterministic(first, again, difference) if difference is not None else None
    if finding is None and other_end(first, [again]) is not None:
        finding = of_end(first, again, repeated=True)
    return Scenario(
        "uninterrupted, twice",
        str(processes),
        2,
        0,
        compared(first, [again]),
        "differs" if finding else "identical",
        finding is None,
        finding,
    )


def killed(
    attempts: Attempts,
    plan: VerifyPlan,
    first: AttemptTrace,
    again: AttemptTrace,
    files: ScriptFiles,
    wrote: tuple[Digests, Digests],
) -> tuple[Scenario, list[str]]:
    """Kill and start again, several times; then to the end. The row, and notes."""
    before, snapshots = attempts.count, attempts.folder / "no-snapshots"
    resumes: list[Resume] = []
    tried: list[str] = []
    failure: Finding | None = None
    at, earlier = 0, [first]
    try:
        for step in (*_kills(first, plan.kills), None):
            interrupt = "" if step is None else f"step {step} {first.world_size - 1}"
            if step == first.final_step:
                interrupt = f"exit {step} 0"
            what = "to its end" if step is None else f"to be killed {_place(step, first)}"
            folders = "\n".join(str(trace.folder) for trace in earlier)
            env = {"RANKUP_TRACE_REFERENCE": folders, "RANKUP_TRACE_KILLED": str(at)}
            ask = AttemptSpec(what, plan.processes, snapshots, None, (), interrupt, env, resumed=bool(at))
            end: AttemptEnd = run_twice(attempts, ask) if at else attempts.run(ask)
            if end.attempt is None:
                continue  # a training that is done trains no step
            if at:
                resumes.append(Resume(at, _saved_before(first, at), end.attempt))
            if not end.killed:
                break
            assert step is not None
            tried.append(_place(step, first))
            at, earlier = end.attempt.last, [*earlier, end.attempt]
    except AttemptFailed as error:
        failure = of_failure(error)
    made = [resume.attempt for resume in resumes]
    written = files.after_training()
    finding = _judge(first, again, resumes, failure, (*wrote, written))
    verdict = "identical" if finding is None else _VERDICTS.get(finding.code, "differs")
    scenario = Scenario(
        "killed and started again",
        str(plan.processes),
        attempts.count - before,
        len(tried),
        compared(first, made),
        verdict,
        finding is None or finding.code == ROUNDING,
        finding,
        tried=tuple(tried),
    )
    notes = [f"position: {resume.position}" for resume in resumes]
    if paths := clocklike(*wrote):
        notes.append(
            f"not compared, because two uninterrupted runs write them differently: {', '.join(paths)}"
        )
    return scenario, notes


# ------------------------------------------------------------------- where it is killed


def _saves(trace: AttemptTrace) -> list[int]:
    """The steps after which the script saves."""
    later = [(step, ranks) for step, ranks in sorted(trace.steps.items())]
    found = [step - 1 for step, ranks in later if any(each.get("saved") for each in ranks.values())]
    if any(each.get("saved") for each in trace.exit.values()):
        found.append(trace.final_step)
    return [step for step in found if step > 0]


def _kills(first: AttemptTrace, wanted: int | None) -> list[int]:
    """Two steps after a save, so that they are trained again, for some saves; and after the last line."""
    inside = [save + 2 for save in _saves(first) if save + 2 < first.final_step]
    count = _SAVES_TRIED if wanted is None else max(0, wanted - 1)
    chosen = [inside[number * len(inside) // count] for number in range(count)] if inside and count else []
    if not inside and first.final_step > 1:
        chosen = [max(1, first.final_step // 2)]
    end = [] if wanted == 0 else [first.final_step]
    return [*dict.fromkeys(chosen), *end]


def _saved_before(first: AttemptTrace, step: int) -> int | None:
    return max((save for save in _saves(first) if save < step), default=None)


def _place(step: int, first: AttemptTrace) -> str:
    return "after the last line of the script" if step == first.final_step else f"after step {step}"


# ------------------------------------------------------------------------ what differs

_VERDICTS = {"no-checkpoint": NOT_JUDGED, "begins-again": NOT_JUDGED, ROUNDING: "equal within rounding"}


def _judge(
    first: AttemptTrace,
    again: AttemptTrace,
    resumes: Sequence[Resume],
    failure: Finding | None,
    files: tuple[Digests, Digests, Digests],
) -> Finding | None:
    made = [resume.attempt for resume in resumes]
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
    if found is None or found.code == ROUNDING:
        later = failure or _of_end(first, again, made)
        if later is None and all(_begins_again(resume) for resume in resumes):
            later = _no_resume(first, resumes)
        found = later or found
    if found is None and (paths := other_files(*files)):
        found = of_files(paths, first, made[-1], again)
    elif found is None and (lines := other_numbers(first.printed, again.printed, made[-1].printed)):
        found = of_printed(lines, first, made[-1], again)
    else:
        return found
    return _of_untrained(first, resumes, found) or found


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


def _begins_again(resume: Resume) -> bool:
    return resume.attempt.resumed_at == 0 and resume.attempt.restored != "nothing"


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


def _not_deterministic(first: AttemptTrace, again: AttemptTrace, difference: Difference) -> Finding:
    mine, theirs = (trace.steps.get(difference.step, {}).get(difference.rank) for trace in (first, again))
    what, fix = "the gradients or the step", "torch.use_deterministic_algorithms(True) names the operation"
    if mine is not None and theirs is not None and mine["before"]["weights"] != theirs["before"]["weights"]:
        what, fix = "the weights before the step", "seed before the model is made: torch.manual_seed(0)"
    elif difference.first == INPUTS:
        what, fix = (
            "the batch",
            "seed the order and the workers: torch.manual_seed, generator=, worker_init_fn=",
        )
    elif difference.first == LOSS:
        what = "the loss"
    return Finding(
        "not-deterministic",
        Severity.ERROR,
        f"two uninterrupted runs differ: first in {what}",
        place=f"step {difference.step}",
        why="the same command was run twice, and nothing was killed",
        fix=fix,
        confidence=Confidence.LIKELY,
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
    return Finding(
        cause.code,
        Severity.NOTE if cause.code == ROUNDING else Severity.ERROR,
        message,
        place=f"step {pair.step}" + (f", rank {pair.rank}" if first.world_size > 1 else ""),
        why=f"{why}; the step is number {pair.step - attempt.resumed_at} after it",
        fix=cause.fix,
        confidence=Confidence.LIKELY,
    )
