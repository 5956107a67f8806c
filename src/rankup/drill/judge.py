"""What a failure cost, whether the job went on by itself, whether its result is the same, and what to change."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rankup.check.paths import check_paths
from rankup.check.selection import Selection
from rankup.drill.attempts import Training
from rankup.drill.copied_job import JobScript
from rankup.drill.drill import Drill, Outcome
from rankup.drill.leftovers import left_processes
from rankup.findings.finding import Finding, Severity

ROUNDED = 1e-5  # of the sum of the weights
SAME, ROUNDING, OTHER, NO_END = "the same", "the same within rounding", "other weights", "no end"
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
            tuple(self._changes(outcome, survived=survived, result=result, left=left, began_anew=began_anew)),
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

    # ------------------------------------------------------------------ what to change

    def _changes(
        self, outcome: Outcome, *, survived: bool, result: str, left: Sequence[str], began_anew: bool
    ) -> list[Finding]:
        failure, job = outcome.failure, self.job
        assert failure is not None
        found: list[Finding] = []

        def add(code: str, message: str, fix: str, line: int | None = None) -> None:
            place = f"{job.path.name}:{line}" if line else job.path.name
            found.append(
                Finding(code, Severity.WARNING if survived else Severity.ERROR, message, place, fix=fix)
            )

        if outcome.endless:
            add("never-ends", "the job starts again and again", "count the attempts, and stop after some")
        if failure.alone and outcome.again == 0 and outcome.training.done:
            add(
                "cannot-be-cancelled",
                "the job went on after it was cancelled",
                "what waits for it by afterany begins then: let the next job look for a file that says so",
            )
        if began_anew:
            add(
                "begins-anew",
                "the job begins anew when it is started again",
                "save every few minutes, and let the script find its newest checkpoint by itself. If you start it in "
                "another way, say so: --again COMMAND; for a job of rankup render RANKUP_RUN=DIR sbatch job.sh",
                job.line_of(r"^\s*(srun|mpirun|mpiexec|torchrun|python|accelerate|deepspeed)\b"),
            )
        if outcome.again and not failure.alone:
            self._not_alone(outcome, add)
        if result == OTHER or result.startswith("an end"):
            add(
                "other-result",
                "the job ends with other weights than without the failure",
                "rankup verify names what its resume does not restore",
            )
        if result == NO_END and not outcome.endless:
            add(
                "no-end",
                "the job does not get to its end any more, also when it is submitted again",
                "write to a temporary file, fsync it, then os.replace; and let the resume skip a file that is damaged",
            )
        if left:
            add("left-behind", f"left behind: {', '.join(left[:3])}", "remove it in a trap on EXIT")
        if failure.name == "second-job" and outcome.training.lost > 0:
            add(
                "two-at-once",
                "two jobs in one folder train the same steps",
                "take a lock (flock), or submit with --dependency=singleton, if that was not meant",
                job.line_of(r"^#SBATCH\s+(-J|--job-name)|^#PBS\s+-N"),
            )
        return found

    def _not_alone(self, outcome: Outcome, add: Any) -> None:
        failure, job = outcome.failure, self.job
        assert failure is not None
        if failure.name.startswith("time-limit"):
            add(
                "not-requeued",
                "the job does not go on by itself after its time limit",
                "#SBATCH --signal=B:USR1@120, and a trap that lets the program save and calls scontrol requeue; on PBS "
                "a timer, and qsub of a successor. rankup render writes both",
                job.line_of(r"^#SBATCH\s+(--signal|-t|--time)|^#PBS\s+-l\s.*walltime"),
            )
        elif failure.name in ("preempted", "node-lost") and job.line_of(r"--no-requeue|^#PBS\s+-r\s+n"):
            add(
                "no-requeue",
                "the script forbids that the job is requeued",
                "#SBATCH --requeue, or #PBS -r y",
                job.line_of(r"--no-requeue|^#PBS\s+-r\s+n"),
            )
        else:
            add(
                "not-started-again",
                "the job does not go on by itself",
                "let the batch script requeue itself when the program ends with an error after it has trained further; "
                "count the attempts",
            )


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
