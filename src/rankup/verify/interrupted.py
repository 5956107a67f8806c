"""Interrupts any script at chosen points, and starts it again after each, as its user would."""

from __future__ import annotations

from dataclasses import dataclass, field

from rankup.findings.finding import Finding, Severity
from rankup.verify.attempts import AttemptEnd, AttemptFailed, ProofStopped
from rankup.verify.conclusion import HALF_WRITTEN
from rankup.verify.diagnosis import of_failure
from rankup.verify.interruptions import KINDS_IN_A_SAVE, Interruption, choose, saves
from rankup.verify.resumes import Resume
from rankup.verify.scenario import Trial
from rankup.verify.trace_reader import AttemptTrace


@dataclass
class Interrupted:
    """What came of the interruptions, to the training's end or until a signal from outside."""

    resumes: list[Resume] = field(default_factory=list)
    tried: list[str] = field(default_factory=list)
    not_reached: list[str] = field(default_factory=list)
    done: list[str] = field(default_factory=list)  # places after which no step was left to train
    half_written: Finding | None = None  # a resume that fails after a save that was cut
    failure: Finding | None = None


# A resume that takes so many times longer than an uninterrupted training, and at least so many seconds, hangs.
_PATIENCE, _PATIENCE_S = 20, 180.0


def interrupt(trial: Trial, first: AttemptTrace, without: str = "") -> Interrupted:
    """One interruption after another, each resumed by the next attempt; the last attempt trains to the end.
    ``without``: a kind that is left out."""
    course, attempts, plan = Interrupted(), trial.attempts, trial.plan
    attempts.patience = max(_PATIENCE_S, _PATIENCE * attempts.seconds)
    chosen = choose(first, plan.kills, shortened=first.final_step == plan.steps, without=without)
    attempts.announce(len(chosen))
    left: list[Interruption | None] = [*chosen, None]
    last: Interruption | None = None  # from which the next attempt resumes
    at, how, earlier = 0, "", [first]
    while left:
        now = left.pop(0)
        what = "to its end" if now is None else f"to be {now.place}".replace("to be SIG", "to get SIG")
        folders = "\n".join(str(trace.folder) for trace in earlier)
        env = {"RANKUP_TRACE_REFERENCE": folders, "RANKUP_TRACE_KILLED": str(at)}
        ask = trial.ask(
            what,
            "no-snapshots",
            interrupt=now.value if now else "",
            env=env,
            resumed=last is not None,
            final_step=first.final_step,
        )
        try:
            end: AttemptEnd = trial.run_twice(ask) if last else attempts.run(ask)
        except ProofStopped:
            return course
        except AttemptFailed as error:
            if last is None or last.kind not in KINDS_IN_A_SAVE:
                course.failure = of_failure(error, last.at(at) if last else "", any_script=True)
                return course
            # Nothing can follow from here. The other interruptions tell something else.
            course.half_written = _half_written(error, last.at(at))
            trial.files.put_back()
            left.insert(0, now)
            at, how, last, earlier = 0, "", None, [first]
            continue
        if end.attempt is None:
            # A training that is done trains no step.
            if now is not None:
                course.not_reached.append(now.place)
            elif last is not None:
                course.done.append(last.at(at))
            continue
        if last is not None:
            course.resumes.append(Resume(last, at, how, _saved_before(first, at), end.attempt))
        if now is not None and not (end.killed or end.signalled):
            course.not_reached += [each.place for each in (now, *left) if each is not None]
            break
        if now is not None:
            last, at, how, earlier = now, end.attempt.last, end.signalled, [*earlier, end.attempt]
            course.tried.append(now.at(at) + (f": {how}" if how else ""))
    return course


def _saved_before(first: AttemptTrace, step: int) -> int | None:
    return max((save for save in saves(first) if save < step), default=None)


def _half_written(error: AttemptFailed, place: str) -> Finding:
    return Finding(
        HALF_WRITTEN,
        Severity.ERROR,
        "the script fails after a kill in the middle of a save",
        why=f"{place}; started again: {error.message}",
        fix='write under another name, then rename: torch.save(state, path + ".tmp"); os.replace(path + ".tmp", path). '
        "If each rank has a file, a resume must find those of the same step on all",
    )
