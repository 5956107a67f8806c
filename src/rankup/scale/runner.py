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
from rankup.batch.store import load
from rankup.batch.submit import submit
from rankup.core.rundir import RunDir
from rankup.errors import RankupError
from rankup.findings.error import findings_of
from rankup.resolve.resolved import Resolved
from rankup.run.execute import Result, View, execute
from rankup.scale.journal import Journal, TrialState
from rankup.scale.plan import Point, Trial
from rankup.scale.read_run import parse_metric, read_breakdown, read_run
from rankup.scale.results import Configuration, Measured, StudyResults

ASK_S = 5.0  # seconds between two questions to the scheduler

JobOf = Callable[[Trial], Resolved]


class StudyView(View, Protocol):
    """Who looks on: told of each trial, and shown what the ranks print meanwhile."""

    def begins(self, number: int, total: int, trial: Trial) -> None: ...

    def submitted(self, trial: Trial, job: str) -> None: ...

    def ended(self, trial: Trial, measured: Measured | None, failure: Mapping[str, Any] | None) -> None: ...


def run_here(
    journal: Journal,
    job_of: JobOf,
    view: StudyView,
    *,
    before: Callable[[Trial], None] = lambda trial: None,
    execute: Callable[[Resolved, View], Result] = execute,
) -> None:
    """Run the trials that have not ended, in their order. ``before`` is called before each, with what was measured.

    Raises ``interrupted`` after Ctrl-C or SIGTERM: the study can go on.
    """
    order = journal.plan.order
    for number, trial in enumerate(order, 1):
        states = journal.states()
        if states[trial].ended or _failed(states, trial.point):
            continue
        before(trial)
        view.begins(number, len(order), trial)
        try:
            result = execute(job_of(trial), view)
        except KeyboardInterrupt:  # while no process of a run is there
            raise _interrupted(signal.SIGINT, journal) from None
        except RankupError as error:
            _note_end(journal, trial, None, _as_failure(trial, error), view)
            continue
        if result.code > 128:
            raise _interrupted(result.code - 128, journal)
        journal.began(trial, result.run.path)
        failure = None if result.code == 0 else _as_failure(trial, result.run.left_error() or result.error)
        _note_end(journal, trial, result.run, failure, view)


def run_as_jobs(
    journal: Journal,
    job_of: JobOf,
    view: StudyView,
    env: Mapping[str, str],
    *,
    before: Callable[[Trial], None] = lambda trial: None,
    sleep: Callable[[float], None] = time.sleep,
) -> None:
    """Submit the trials that are not in the queue yet, each after the one ``at_once`` places before it, and wait.

    Jobs stay in the queue if this is interrupted: called again, it waits for them and submits what is missing.
    """
    order, at_once = journal.plan.order, journal.plan.at_once
    try:
        for number, trial in enumerate(order, 1):
            states = journal.states()
            if states[trial].run or states[trial].ended:
                continue
            before(trial)
            view.begins(number, len(order), trial)
            ahead = [
                states[one].job for one in order[: number - 1] if states[one].job and not states[one].ended
            ]
            job = job_of(trial)
            after = tuple(ahead[-at_once:][:1]) if len(ahead) >= at_once else ()
            submitted = submit(replace(job, spec=job.spec.model_copy(update={"after_any": after})), env=env)
            journal.began(trial, submitted.run.path, submitted.ids()[0])
            view.submitted(trial, submitted.ids()[0])
        while waiting := [
            (trial, state) for trial, state in journal.states().items() if state.run and not state.ended
        ]:
            for trial, state in waiting:
                _look(journal, trial, state, view)
            if any(state.run and not state.ended for state in journal.states().values()):
                sleep(ASK_S)
    except KeyboardInterrupt:
        raise _interrupted(signal.SIGINT, journal) from None


def collect(journal: Journal) -> StudyResults:
    """What has been measured so far."""
    plan = journal.plan
    metric = parse_metric(plan.metric) if plan.metric else None
    states = journal.states()
    configurations = []
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
        configurations.append(Configuration(dict(point), runs, failure))
    return StudyResults(
        target=plan.target,
        scaling=plan.scaling,
        configurations=configurations,
        machine=plan.machine,
        repeats=plan.repeats,
        metric=plan.metric,
        load_before=plan.load,
    )


def _look(journal: Journal, trial: Trial, state: TrialState, view: StudyView) -> None:
    """Ask how the job of ``trial`` is, and note its end."""
    job = load(Path(state.run))
    (status,), _ = query_statuses([job])  # a scheduler that does not answer is asked again later
    if not status.state.ended or not status.settled:
        return
    failure = None
    if status.exit_code:
        message = f"{trial.name}: job {status.id} failed: {status.reason or f'exit code {status.exit_code}'}"
        failure = _finding(RankupError("run-failed", message, context=state.run, exit_code=1))
    _note_end(journal, trial, RunDir(Path(state.run)), failure, view)


def _note_end(
    journal: Journal, trial: Trial, run: RunDir | None, failure: Mapping[str, Any] | None, view: StudyView
) -> None:
    measured = None
    if failure is None and run is not None and trial.repeat:
        metric = parse_metric(journal.plan.metric) if journal.plan.metric else None
        try:
            measured = read_run(trial, run, metric)
        except RankupError as error:
            failure = _as_failure(trial, error)
    journal.ended(trial, failure)
    view.ended(trial, measured, failure)


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
    return RankupError(
        "interrupted",
        f"ended by {signal.Signals(signum).name} after {done} of {len(states)} runs",
        context=str(journal.folder),
        hint=f"rankup scale --resume {journal.folder} goes on",
        exit_code=128 + signum,
    )
