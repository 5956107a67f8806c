"""What a failure cost, whether the job went on by itself, and whether its result is the same."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from rankup.check.paths import check_paths
from rankup.check.selection import Selection
from rankup.drill.advice import NO_END, OTHER, ROUNDING, SAME, Seen, changes
from rankup.drill.attempts import Training
from rankup.drill.copied_job import JobScript
from rankup.drill.drill import Drill, Outcome
from rankup.drill.leftovers import left_processes
from rankup.findings.finding import Finding

ROUNDED = 1e-5  # of the sum of the weights
_LEFT = re.compile(r"\.(tmp|temp|lock|part|partial|swp)\b|~$|(^|/)\.?tmp", re.I)
# What check finds that decides how a job meets failures: signals, requeue, saves, resume.
_RULES = tuple(f"RK{n}" for n in (127, 128, 129, 130, 131, 219, 401, 404, 405, 406, 408))


@dataclass(frozen=True)
class Verdict:
    """One row. ``lost``: steps that were trained again; ``changes``: what to change."""

    outcome: Outcome
    survived: bool
    lost: int
    minutes: float
    went_on: str
    result: str
    left: tuple[str, ...] = ()
    changes: tuple[Finding, ...] = ()

    @property
    def name(self) -> str:
        assert self.outcome.failure is not None
        return self.outcome.failure.name


@dataclass
class Judge:
    """Of one drill."""

    job: JobScript
    reference: Outcome
    same_again: bool | None = None  # whether two uninterrupted runs are equal; None: not asked yet
    left_processes: dict[str, list[str]] = field(default_factory=dict)  # failure → processes

    def result(self, training: Training) -> str:
        mine, theirs = self.reference.training.end, training.end
        if theirs is None or mine is None:
            ended = [start for start in training.starts[1:] if start.ended]
            return f"an end after {ended[-1].last} of {training.steps} steps" if ended else NO_END
        if mine.state == theirs.state:
            return SAME
        near = abs(mine.size - theirs.size) <= ROUNDED * abs(mine.size)
        return ROUNDING if near and mine.last == theirs.last else OTHER

    def verdict(self, outcome: Outcome) -> Verdict:
        training, failure = outcome.training, outcome.failure
        assert failure is not None
        if not outcome.struck:
            return Verdict(outcome, survived=False, lost=0, minutes=0.0, went_on="", result="")
        result = self.result(training)
        if result == OTHER and self.same_again is False:
            result = "cannot be judged: two uninterrupted runs differ"
        left = (*self._left_files(outcome), *self.left_processes.get(failure.name, ()))
        first = training.starts[0] if training.starts else None
        saved = [save for save in (first.saves if first else []) if save <= first.last] if first else []
        resumed = [start.began for start in training.starts[1:]]
        from_last = not resumed or not saved or min(resumed) >= saved[-1]
        began_anew = any(start.began == 0 for start in training.starts[1:]) and outcome.step > 0
        if failure.name == "second-job":  # it may well be a training of its own; then it must end the same
            began_anew, from_last = False, True
            ends = [start for start in training.starts if start.ended and start.last >= training.steps]
            if result == SAME and any(start.state != ends[0].state for start in ends):
                result = OTHER
        survived = (
            result in (SAME, ROUNDING)
            and from_last
            and not began_anew
            and not left
            and not outcome.endless
            and not (failure.alone and outcome.again == 0)
        )
        lost = max(0, training.lost)
        return Verdict(
            outcome,
            survived,
            lost,
            lost * self.reference.training.step_seconds / 60,
            self._went_on(outcome),
            result,
            left,
            tuple(changes(Seen(self.job, outcome, result, left, began_anew), survived=survived)),
        )

    def _went_on(self, outcome: Outcome) -> str:
        if outcome.endless:
            return "for ever"
        if not outcome.training.done:
            return "no"
        if outcome.again:
            return "when it was submitted again"
        return "by itself" if len(outcome.training.starts) > 1 else "it did not stop"

    def _left_files(self, outcome: Outcome) -> list[str]:
        """Temporary files and locks that the uninterrupted run has not left."""

        def names(folder: Path) -> dict[str, str]:
            paths = [str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()]
            return {re.sub(r"\d+", "#", path): path for path in paths}

        usual = names(self.reference.copy.folder)
        return [
            path
            for key, path in names(outcome.copy.folder).items()
            if key not in usual and _LEFT.search(path)
        ]


def changes_of_check(job: JobScript) -> list[Finding]:
    """What ``rankup check`` says of signals, requeue and saves in the script and its program."""
    return check_paths([job.path], Selection(select=_RULES), None).findings


def judge_all(drill: Drill, outcomes: Sequence[Outcome]) -> list[Verdict]:
    """The verdicts, after a look for processes that are left, and a second uninterrupted run if results differ."""
    judge = Judge(drill.plan.job, drill.reference)
    struck = [outcome for outcome in outcomes if outcome.struck]
    nodes = {node for outcome in struck for node in outcome.nodes}
    if nodes:
        drill.view.begins("what is left on the nodes")
        judge.left_processes, unseen = left_processes(
            drill.queue, drill.home, nodes, drill.plan.job.destination
        )
        for node in unseen:
            drill.view.says(f"{node} could not be looked at")
    if any(judge.result(outcome.training) == OTHER for outcome in struck):
        judge.same_again = judge.result(drill.uninterrupted("uninterrupted-again").training) == SAME
    return [judge.verdict(outcome) for outcome in outcomes]
