"""Runs the trials of a study, here one after the other or as jobs of a scheduler, and goes on where it was interrupted.

A configuration whose run fails is measured no further; the others go on.
"""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Protocol

from rankup.batch.queue import query_statuses
from rankup.batch.recover import recover
from rankup.batch.store import load
from rankup.batch.submit import submit
from rankup.core.rundir import RunDir
from rankup.errors import RankupError
from rankup.findings.error import findings_of
from rankup.findings.finding import Finding, Severity
from rankup.resolve.resolved import Resolved
from rankup.run.execute import Result, View, execute
from rankup.run.markers import REQUEUE_CODE
from rankup.scale.journal import Journal, TrialState
from rankup.scale.plan import Point, Trial
from rankup.scale.read_run import parse_metric, read_breakdown, read_run, with_shares
from rankup.scale.results import Configuration, Measured, StudyResults
from rankup.schedulers.base import JobState

ASK_S = 5.0  # seconds between two questions to the scheduler
SETTLE_S = 12.0  # so long may the last files of a job take over a network file system
# What the scheduler may take later: the study waits for its own jobs, and submits the rest then.
_LATER = ("too-many-jobs", "queue-closed")

JobOf = Callable[[Trial], Resolved]


class StudyView(View, Protocol):
    """Who looks on: told of each trial, and shown what the ranks print meanwhile."""

    def begins(self, number: int, total: int, trial: Trial) -> None: ...

    def submitted(self, trial: Trial, job: str) -> None: ...

    def ended(self, trial: Trial, measured: Measured | None, failure: Mapping[str, Any] | None) -> None: ...


class Predictor(Protocol):
    """Told of each trial before it is measured and after, to predict it and to score the prediction."""

    def before(self, trial: Trial) -> None: ...

    def after(self, trial: Trial, measured: Measured | None) -> None: ...


def run_here(
    journal: Journal,
    job_of: JobOf,
    view: StudyView,
    *,
    predictor: Predictor | None = None,
    execute: Callable[[Resolved, View], Result] = execute,
) -> None:
    """Run the trials that have not ended, in their order.

    Raises ``interrupted`` after Ctrl-C or SIGTERM: the study can go on.
    """
    order = journal.plan.order
    try:
        for number, trial in enumerate(order, 1):
            states = journal.states()
            if states[trial].ended or _failed(states, trial.point):
                continue
            if predictor is not None:
                predictor.before(trial)
            view.begins(number, len(order), trial)
            try:
                result = execute(job_of(trial), view)
            except RankupError as error:
                if (
                    error.code == "unwritable-directory"
                ):  # the study's place is full, and not this configuration wrong
                    hint = f"make room there; rankup scale --resume {journal.folder} goes on"
                    raise RankupError(error.code, error.message, context=error.context, hint=hint) from error
                _note_end(journal, trial, None, _as_failure(trial, error), view, predictor)
                continue
            if result.code == REQUEUE_CODE:  # it was told to stop by SIGTERM, and has saved
                raise _interrupted(signal.SIGTERM, journal)
            if result.code > 128:
                raise _interrupted(result.code - 128, journal)
            journal.began(trial, result.run.path)
            failure = (
                None if result.code == 0 else _as_failure(trial, result.run.left_error() or result.error)
            )
            _note_end(journal, trial, result.run, failure, view, predictor)
            if result.signal is not None:  # it came as the run ended
                raise _interrupted(result.signal, journal)
    except KeyboardInterrupt:  # while no process of a run is there
        raise _interrupted(signal.SIGINT, journal) from None


def run_as_jobs(
    journal: Journal,
    job_of: JobOf,
    view: StudyView,
    env: Mapping[str, str],
    *,
    predictor: Predictor | None = None,
    sleep: Callable[[float], None] = time.sleep,
) -> None:
    """Submit the trials that are not in the queue yet, each after the one ``at_once`` places before it, and wait.

    Jobs stay in the queue if this is interrupted: called again, it waits for them and submits what is missing.
    """
    jobs = _Jobs(journal, view, predictor)
    try:
        jobs.look()  # of an earlier call: they may have ended meanwhile
        while True:
            _submit_missing(journal, job_of, view, env)
            if not jobs.waiting():
                return
            jobs.look()
            if jobs.waiting():
                sleep(ASK_S)
    except KeyboardInterrupt:
        raise _interrupted(signal.SIGINT, journal) from None


def _submit_missing(journal: Journal, job_of: JobOf, view: StudyView, env: Mapping[str, str]) -> None:
    """At most ``at_once`` of them run together: a job starts when the one so many places before it has ended."""
    order, at_once = journal.plan.order, journal.plan.at_once
    for number, trial in enumerate(order, 1):
        states = journal.states()
        if states[trial].run or states[trial].ended or _failed(states, trial.point):
            continue
        view.begins(number, len(order), trial)
        living = [state.job for state in states.values() if state.job and not state.ended]
        after = (living[-at_once],) if len(living) >= at_once else ()
        try:
            job = job_of(trial)
            if before := states[trial].submitting:  # by a process that was killed
                known = recover(RunDir(Path(before)), job.site.scheduler, env)
                if known:
                    journal.began(trial, Path(before), known)
                    view.submitted(trial, known)
                    continue
            submitted = submit(
                replace(job, spec=job.spec.model_copy(update={"after_any": after})),
                env=env,
                made=lambda run, trial=trial: journal.submitting(trial, run.path),  # type: ignore[misc]
            )
        except RankupError as error:
            if error.code in _LATER and living:
                return
            if error.exit_code != 2:  # the scheduler, and not this configuration
                raise
            _note_end(journal, trial, None, _as_failure(trial, error), view, None)
            continue
        journal.began(trial, submitted.run.path, submitted.ids()[0])
        view.submitted(trial, submitted.ids()[0])


class _Jobs:
    """The jobs of a study that have begun to wait or to run, and how they end."""

    def __init__(self, journal: Journal, view: StudyView, predictor: Predictor | None) -> None:
        self.journal, self.view, self.predictor = journal, view, predictor
        self._over: dict[str, float] = {}  # run directory → when the scheduler first called it ended

    def waiting(self) -> list[tuple[Trial, TrialState]]:
        return [
            (trial, state) for trial, state in self.journal.states().items() if state.run and not state.ended
        ]

    def look(self) -> None:
        """Ask the scheduler about all of them at once, and note what has ended."""
        waiting = self.waiting()
        # A scheduler that does not answer is asked again later.
        statuses, _ = query_statuses([load(Path(state.run)) for _, state in waiting])
        for (trial, state), status in zip(waiting, statuses, strict=True):
            if not status.state.ended:
                if self.predictor is not None:
                    self.predictor.before(trial)
                continue
            since = self._over.setdefault(state.run, time.monotonic())
            if not status.settled and time.monotonic() - since < SETTLE_S:
                continue
            failure = None
            if status.exit_code or status.state in (JobState.CANCELLED, JobState.FAILED):
                by_code = bool(status.exit_code) and status.state is not JobState.CANCELLED
                why = status.reason or (f"exit code {status.exit_code}" if by_code else status.state.value)
                error = RankupError("run-failed", f"job {status.id}: {why}", context=state.run, exit_code=1)
                failure = _as_failure(trial, RunDir(Path(state.run)).left_error() or error)
            _note_end(self.journal, trial, RunDir(Path(state.run)), failure, self.view, self.predictor)


def collect(journal: Journal) -> StudyResults:
    """What has been measured so far."""
    plan = journal.plan
    metric = parse_metric(plan.metric) if plan.metric else None
    states = journal.states()
    measured: list[list[Measured]] = []
    failures: list[Mapping[str, Any] | None] = []
    for point in plan.points:
        mine = [(trial, state) for trial, state in states.items() if trial.point == point]
        failure = next((state.failure for _, state in mine if state.ended == "failed"), None)
        parts = next(
            (read_breakdown(RunDir(Path(s.run))) for t, s in mine if t.repeat == 0 and s.ended == "done"), {}
        )
        runs = []
        for trial, state in mine:
            if trial.repeat == 0 or state.ended != "done":
                continue
            try:
                runs.append(replace(read_run(trial, RunDir(Path(state.run)), metric), breakdown=parts))
            except RankupError as error:  # records that somebody has deleted meanwhile
                failure = failure or _as_failure(trial, error)
        measured.append(runs)
        failures.append(failure)
    configurations = [
        Configuration(dict(point), runs, failure)
        for point, runs, failure in zip(plan.points, with_shares(measured), failures, strict=True)
    ]
    return StudyResults(
        target=plan.target,
        scaling=plan.scaling,
        configurations=configurations,
        machine=plan.machine,
        repeats=plan.repeats,
        metric=plan.metric,
        load_before=plan.load,
        made=plan.made,
    )


def unfinished(journal: Journal) -> Finding | None:
    """That runs are missing, if some are."""
    states = list(journal.states().values())
    done = sum(bool(state.ended) for state in states)
    if done == len(states):
        return None
    return Finding(
        "unfinished-study",
        Severity.WARNING,
        f"{done} of {len(states)} runs have ended, warm-ups included",
        place=str(journal.folder),
        why="what was measured so far may change",
        fix=f"rankup scale --resume {journal.folder} goes on",
    )


def _note_end(
    journal: Journal,
    trial: Trial,
    run: RunDir | None,
    failure: Mapping[str, Any] | None,
    view: StudyView,
    predictor: Predictor | None,
) -> None:
    measured = None
    metric = parse_metric(journal.plan.metric) if journal.plan.metric else None
    # A pattern that does not match is found out by the warm-up, before the others have run as well.
    if failure is None and run is not None and (trial.repeat or metric is not None):
        try:
            found = read_run(trial, run, metric)
            measured = found if trial.repeat else None
        except RankupError as error:
            failure = _as_failure(trial, error)
    journal.ended(trial, failure)
    view.ended(trial, measured, failure)
    if predictor is not None:
        predictor.after(trial, measured)


def _failed(states: Mapping[Trial, TrialState], point: Point) -> bool:
    return any(state.ended == "failed" for trial, state in states.items() if trial.point == point)


def _as_failure(trial: Trial, error: RankupError | None) -> Mapping[str, Any]:
    which = f"repeat {trial.repeat}" if trial.repeat else "the warm-up"
    if error is None:
        return _finding(RankupError("run-stopped", f"{trial.name}: {which} was stopped", exit_code=1))
    message = f"{trial.name}: {which} failed: {error.message}"
    return _finding(RankupError(error.code, message, context=error.context, hint=error.hint, exit_code=1))


def _finding(error: RankupError) -> Mapping[str, Any]:
    return findings_of(error)[0].as_dict()


def _interrupted(signum: int, journal: Journal) -> RankupError:
    states = list(journal.states().values())
    done = sum(bool(state.ended) for state in states)
    queued = sum(bool(state.job and not state.ended) for state in states)
    stay = f"; {queued} job{'s' * (queued > 1)} stay{'s' * (queued == 1)} in the queue" if queued else ""
    cancel = f"; rankup cancel --all --runs-root {journal.folder} cancels the jobs" if queued else ""
    return RankupError(
        "interrupted",
        f"ended by {signal.Signals(signum).name} after {done} of {len(states)} runs{stay}",
        context=str(journal.folder),
        hint=f"rankup scale --resume {journal.folder} goes on{cancel}",
        exit_code=128 + signum,
    )
