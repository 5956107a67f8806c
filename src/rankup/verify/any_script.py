"""The proof of a script that does not use ``run.steps``, unchanged: does it go on as if nobody had killed it?

The script saves by itself, when it likes; so it is killed after steps that follow one of its saves. It is started again
as its user would: by the same command, or with ``--resume-args``. Its traces have steps of its optimizers
(``runtime/tracing/any_script.py``), each placed among those of the uninterrupted training by the weights with which it
began.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterator, Sequence
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
    differing,
    first_difference,
    other_end,
    pairs,
    unsteady,
)
from rankup.verify.output import other_numbers
from rankup.verify.scenario import Scenario, VerifyPlan, run_twice
from rankup.verify.trace_reader import AttemptTrace, Record

_SAVES_TRIED = 3  # after which a kill follows
_ROUNDED = 1e-6  # of the weights' sum
NOT_JUDGED, ROUNDING = "not judged", "rounding"


@dataclass(frozen=True)
class Resume:
    """One kill, and the attempt that followed. ``saved``: the last step after which the killed attempt had saved."""

    killed_at: int
    saved_at: int | None
    attempt: AttemptTrace

    @property
    def position(self) -> str:
        """In words: where it went on, and what that cost."""
        lost, at = self.killed_at - self.attempt.resumed_at, self.attempt.resumed_at
        if self.attempt.begin[0].get("restored") == "nothing":
            return f"killed after step {self.killed_at}: went on with weights of no step before it"
        again = f"trained {lost} step{'s' * (lost != 1)} again" if lost else "trained no step twice"
        return f"killed after step {self.killed_at}, went on after step {at}: {again}"


def repeated(first: AttemptTrace, again: AttemptTrace, processes: int) -> Scenario:
    """Two uninterrupted trainings: are they one?"""
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
            folders = os.pathsep.join(str(trace.folder) for trace in earlier)
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
    ignore = unsteady(first, again)
    if resumes and all(_begins_again(resume) for resume in resumes):
        return _no_resume(first, resumes)
    within: Finding | None = None
    for resume in resumes:
        if _begins_again(resume) and resume.saved_at is None:
            continue
        difference = first_difference(first, [resume.attempt], ignore=ignore)
        if difference is not None or resume.attempt.begin[0].get("restored") == "nothing":
            within = _of_resume(first, resume, difference, ignore)
            break  # those that follow differ for the same reason
    if within is not None and within.severity is Severity.ERROR:
        return within
    if failure is not None:
        return failure
    if (end := other_end(first, made)) is not None:
        return of_end(first, made[end[0] - 1], again)
    if within is not None:
        return within
    if made and (paths := other_files(*files)):
        return of_files(paths, first, made[-1], again)
    if made and (lines := other_numbers(first.printed, again.printed, made[-1].printed)):
        return of_printed(lines, first, made[-1], again)
    return None


_ALWAYS = ("other-resume", "the resumed training differs", "compare what is saved with what the loop changes")


def _begins_again(resume: Resume) -> bool:
    return resume.attempt.resumed_at == 0 and resume.attempt.begin[0].get("restored") != "nothing"


def _no_resume(first: AttemptTrace, resumes: Sequence[Resume]) -> Finding:
    if not _saves(first):
        return Finding(
            "no-checkpoint",
            Severity.ERROR,
            "the script writes no checkpoint",
            why=f"torch.save was not called in {first.final_step} steps, and each start began at the first one",
            fix="save the model, the optimizer, the schedule and the generators every few minutes, and load them",
        )
    if resumes[-1].attempt.final_step < first.final_step:
        return Finding(
            "weights-not-restored",
            Severity.ERROR,
            "the script goes on with the weights of its beginning",
            why=f"{resumes[0].position}; the training ends after {resumes[-1].attempt.final_step} steps, and not after "
            f"{first.final_step}: so it has restored its position",
            fix="load the model's state, too",
        )
    return Finding(
        "begins-again",
        Severity.ERROR,
        "the script saves, and does not go on from what it has saved",
        why=f"it was killed after steps {', '.join(str(r.killed_at) for r in resumes)}, and each start began with the "
        "weights of the first step",
        fix="give verify what its user would type: --resume-args '--resume {last}' --checkpoint 'out/*.pt'",
    )


def _not_deterministic(first: AttemptTrace, again: AttemptTrace, difference: Difference) -> Finding:
    mine, theirs = _record(first, difference), _record(again, difference)
    what, fix = _first_of(mine, theirs, difference)
    return Finding(
        "not-deterministic",
        Severity.ERROR,
        f"two uninterrupted runs differ: first in {what}",
        place=f"step {difference.step}",
        why="the same command was run twice, and nothing was killed",
        fix=fix,
        confidence=Confidence.LIKELY,
    )


def _record(trace: AttemptTrace, difference: Difference) -> Record | None:
    return trace.steps.get(difference.step, {}).get(difference.rank)


def _first_of(mine: Record | None, theirs: Record | None, difference: Difference) -> tuple[str, str]:
    """Which of a step's inputs and results differ first between two runs of one command, and what makes it so."""
    if mine is not None and theirs is not None and mine["before"]["weights"] != theirs["before"]["weights"]:
        return "the weights before the step", "seed before the model is made: torch.manual_seed(0)"
    if difference.first == INPUTS:
        return "the batch", "seed the order and the workers: torch.manual_seed, generator=, worker_init_fn="
    if difference.first == LOSS:
        return "the loss", "torch.use_deterministic_algorithms(True) names the operation"
    return "the gradients or the step", "torch.use_deterministic_algorithms(True) names the operation"


def _of_resume(
    first: AttemptTrace, resume: Resume, difference: Difference | None, ignore: frozenset[str]
) -> Finding:
    """What the resume has not restored: what the step after it began with, in the order of its use. Of several ranks
    the one that tells most: what one of them has lost changes the gradients of all."""
    attempt = resume.attempt
    step = difference.step if difference is not None else attempt.resumed_at + 1
    both = [(rank, mine, theirs) for at, rank, mine, theirs in pairs(first, attempt) if at == step]
    found = [
        (number, rank, cause, _apart(mine, theirs))
        for rank, mine, theirs in both
        for number, cause in enumerate(_causes(first, attempt, mine, theirs, ignore, step))
        if cause is not None
    ]
    _, rank, (code, message, fix), apart = min(found, default=(0, 0, _ALWAYS, 0.0))
    return Finding(
        code,
        Severity.NOTE if code == ROUNDING else Severity.ERROR,
        message,
        place=f"step {step}" + (f", rank {rank}" if first.world_size > 1 else ""),
        why=f"two uninterrupted runs are equal; {resume.position}; the step is number "
        f"{step - attempt.resumed_at} after it; the weights' sum differs by {apart:.1e} after it",
        fix=fix,
        confidence=Confidence.LIKELY,
    )


def _causes(
    first: AttemptTrace,
    attempt: AttemptTrace,
    mine: Record,
    theirs: Record,
    ignore: frozenset[str],
    step: int,
) -> Iterator[tuple[str, str, str] | None]:
    """(code, message, fix), the likeliest first; None where one does not apply."""
    ours, other = mine["before"], theirs["before"]
    names = [name for name in differing(mine, theirs) if name not in ignore]
    yield (
        (
            "weights-not-restored",
            "the weights after the resume are those of no step before it",
            "save the weights of the step at hand (not an average, not the best ones), after optimizer.step(), and "
            "load them before the optimizer is made",
        )
        if attempt.begin[0].get("restored") == "nothing"
        else None
    )
    yield (
        (
            "optimizer-not-restored",
            "the optimizer's state before the step is another one (moments, counts of steps)",
            "save optimizer.state_dict(), and load it into the optimizer that steps",
        )
        if ours["optimizer"] != other["optimizer"]
        else None
    )
    same = [at for at, ranks in sorted(first.steps.items()) if ranks[0]["before"]["lr"] == other["lr"]]
    where = f", that of step {same[0]}" if same else ""
    yield (
        (
            "schedule-not-restored",
            f"the learning rate is {_numbers(other['lr'])}{where}, and not {_numbers(ours['lr'])}: the schedule was "
            "not restored",
            "save scheduler.state_dict() and load it; or compute the rate from the step that was restored",
        )
        if ours["lr"] != other["lr"]
        else None
    )
    yield (
        (
            "options-not-restored",
            "the optimizer's options are others (weight decay, momentum, betas)",
            "load optimizer.state_dict(), and give the optimizer the same arguments after a resume",
        )
        if ours["options"] != other["options"]
        else None
    )
    yield _of_batch(first, mine, theirs, step) if mine["batch"] != theirs["batch"] else None
    yield (
        (
            "generators-not-restored",
            "the generators' states are others (dropout, noise, shuffling)",
            "save torch.get_rng_state(), random.getstate() and numpy.random.get_state() of each rank, and set them",
        )
        if any(name.startswith(UNTRACKED) for name in names)
        else None
    )
    yield (
        (
            "hidden-state",
            "the loss of the same batch with the same weights is another one",
            "something that the loss depends on is not saved: a temperature, a teacher, a counter, a loss scale",
        )
        if LOSS in names and _apart(mine, theirs) > _ROUNDED
        else None
    )
    yield (
        ("buffers-not-restored", "the model's buffers are others", "save the whole model.state_dict()")
        if "buffers" in names and _apart(mine, theirs) > _ROUNDED
        else None
    )
    yield (
        (
            ROUNDING,
            "the step differs in the last digits alone: what it began with is equal",
            "decide whether that is enough. DDP on three ranks or more sums gradients in another order in its first "
            "step; other sources are cuDNN's choice of algorithms and atomic additions",
        )
        if _apart(mine, theirs) <= _ROUNDED
        else None
    )
    yield _ALWAYS


def _of_batch(first: AttemptTrace, mine: Record, theirs: Record, step: int) -> tuple[str, str, str]:
    elsewhere = [
        at
        for at, ranks in sorted(first.steps.items())
        if any(record["batch"] == theirs["batch"] for record in ranks.values())
    ]
    samples = {
        row: at for at, ranks in first.steps.items() for record in ranks.values() for row in record["rows"]
    }
    known = [samples[row] for row in theirs["rows"] if row in samples]
    where = f"that of step {elsewhere[0]}" if elsewhere else "another one"
    if not elsewhere and known and len(known) == len(theirs["rows"]):
        where = "in another order" if {*mine["rows"]} == {*theirs["rows"]} else "made of other samples"
    return (
        "data-not-restored",
        f"the batch of step {step} is {where}: the position in the data was not restored",
        "save the epoch and the batches of it that are done, set the sampler's epoch (set_epoch) or its generator, and "
        "skip what was trained; a DataLoader draws its seed from torch's generator at each epoch",
    )


def _apart(mine: Record | None, theirs: Record | None) -> float:
    """By how much of itself the sum of the weights differs after the step."""
    if mine is None or theirs is None or not mine["size"]:
        return math.inf
    return float(abs(mine["size"] - theirs["size"]) / mine["size"])


def _numbers(values: Sequence[float]) -> str:
    return ", ".join(f"{value:.6g}" for value in dict.fromkeys(values))
