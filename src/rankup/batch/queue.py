"""Queries schedulers about runs: one query for all jobs of one scheduler."""

from __future__ import annotations

import os
import time
from collections.abc import Collection, Sequence

from rankup.batch.status import RunStatus, status_of
from rankup.batch.store import SubmittedRun
from rankup.core import shell
from rankup.errors import RankupError
from rankup.findings.finding import Finding, Severity
from rankup.resolve.resolved import Resolved
from rankup.run.markers import read_markers
from rankup.schedulers.base import JobStatus, Scheduler, scheduler_named

# How long a client of the scheduler may take. Its own timeout for a frozen controller is longer.
PATIENCE_S = 60.0
FOLLOW_PATIENCE_S = 10.0
STATUS_PATIENCE_S = 3.0
UNKNOWN_JOB = "unknown-job"


def query_status(jobs: Sequence[SubmittedRun], patience: float = FOLLOW_PATIENCE_S) -> list[RunStatus]:
    """The status of each of ``jobs``. Raises ``RankupError`` if a scheduler does not answer."""
    standings, silent = query_statuses(jobs, patience)
    for error in silent:
        raise error
    return standings


def query_statuses(
    jobs: Sequence[SubmittedRun], patience: float = STATUS_PATIENCE_S
) -> tuple[list[RunStatus], list[RankupError]]:
    """The status of each of ``jobs``, and the errors of schedulers that did not answer within ``patience`` seconds.

    If a scheduler does not answer, the status is that of the run directory. For runs whose outcome is final, no
    scheduler is queried.
    """
    wanted: dict[str, list[str]] = {}
    for job in jobs:
        folders = list(job.tasks().values()) or [job.run.path]
        if not all(read_markers(folder).final for folder in folders):
            wanted.setdefault(job.scheduler, []).extend(job.ids())
    said: dict[str, dict[str, JobStatus]] = {}
    silent: dict[str, RankupError] = {}
    for name, ids in wanted.items():
        try:
            said[name] = query_scheduler(scheduler_named(name), ids, patience)
        except RankupError as error:
            silent[name] = error
    standings = [status_of(job, said.get(job.scheduler, {}), silent=job.scheduler in silent) for job in jobs]
    return standings, list(silent.values())


def query_scheduler(
    scheduler: Scheduler, ids: Sequence[str], patience: float = PATIENCE_S
) -> dict[str, JobStatus]:
    """The scheduler's status of ``ids``; ids that it has forgotten are left out.

    Raises ``RankupError`` if it does not answer within ``patience`` seconds, all its commands together.
    """
    known: dict[str, JobStatus] = {}
    if not ids:
        return known
    env, deadline = scheduler.clean(os.environ), time.monotonic() + patience
    for command in scheduler.status_commands(ids):
        left = max(deadline - time.monotonic(), 0.1)
        done = shell.run(command, env=env, timeout=round(left, 1))
        known = scheduler.read_status(done, ids) | known  # the first to know says most
        if all(ident in known for ident in ids):
            break
    return known


def unknown_jobs(job: Resolved, *, ignore: Collection[str] = ()) -> list[Finding]:
    """Jobs that ``job`` is to wait for and that the scheduler does not know; nothing if it does not answer soon."""
    conditions = {"--after": job.spec.after, "--after-any": job.spec.after_any}
    asked = [ident for ids in conditions.values() for ident in ids]
    if not asked or UNKNOWN_JOB in ignore:
        return []
    try:
        known = query_scheduler(scheduler_named(job.site.scheduler), asked, FOLLOW_PATIENCE_S)
    except RankupError:
        return []  # the submit says it
    return [
        Finding(
            UNKNOWN_JOB,
            Severity.ERROR,
            f"the scheduler does not know the job {ident}",
            place=option,
            why="the job would start at once, or never",
            fix="`rankup status` lists the ids; a job that ended long ago is forgotten: leave it out, or --ignore "
            f"{UNKNOWN_JOB}",
        )
        for option, ids in conditions.items()
        for ident in ids
        if ident not in known
    ]
