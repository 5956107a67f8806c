"""Ends a submitted run: at once, or after it has saved."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from pathlib import Path

from rankup.batch.queue import query_scheduler
from rankup.batch.store import SubmittedRun
from rankup.core import shell
from rankup.core.files import write_atomic
from rankup.core.rundir import RunDir
from rankup.run.markers import FINAL, read_markers
from rankup.schedulers.base import JobState, JobStatus, Scheduler, scheduler_named


def cancel(job: SubmittedRun) -> list[str]:
    """Cancel all jobs of the run that wait or run, and return their ids.

    The file CANCELLED is written first: a script that is just ending looks for it before it requests a requeue. The
    outcome ``cancelled`` is written last, after the scheduler has accepted. Raises ``RankupError`` if it refuses.
    """
    scheduler = scheduler_named(job.scheduler)
    living = _living(job, scheduler)
    if living:
        _cancel(job, scheduler, [status.id for status in living])
    return [status.id for status in living]


def save_and_stop(job: SubmittedRun) -> tuple[list[str], list[str]]:
    """Ask the ranks to save and end; (ids of the jobs that were asked, ids that waited and were cancelled).

    A job that waits has nothing to save.
    """
    scheduler = scheduler_named(job.scheduler)
    living = _living(job, scheduler)
    running = [status.id for status in living if status.state is JobState.RUNNING]
    waiting = [status.id for status in living if status.state is JobState.PENDING]
    if not running:
        return [], cancel(job)
    # The request first: after the successors are cancelled, the running job must not submit new ones.
    deadline = int(time.time()) + job.spec.lead
    for folder in _folders(job):
        if read_markers(folder).outcome not in FINAL:
            write_atomic(folder / "STOP", f"user {deadline}\n", mode=0o600)
    if waiting:
        scheduler.read_cancel(shell.run(scheduler.cancel_command(waiting), env=scheduler.clean(os.environ)))
    return running, waiting


def _living(job: SubmittedRun, scheduler: Scheduler) -> list[JobStatus]:
    """The jobs that wait or run, an array as one."""
    said = query_scheduler(scheduler, job.ids())
    return [said[ident] for ident in job.ids() if ident in said and not said[ident].state.ended]


def _cancel(job: SubmittedRun, scheduler: Scheduler, ids: Sequence[str]) -> None:
    folders = _folders(job)
    marks = [folder / "CANCELLED" for folder in folders if not (folder / "CANCELLED").exists()]
    for mark in marks:
        mark.touch(mode=0o600)
    try:
        scheduler.read_cancel(shell.run(scheduler.cancel_command(ids), env=scheduler.clean(os.environ)))
    except BaseException:
        for mark in marks:
            mark.unlink()
        raise
    for folder in folders:
        if read_markers(folder).outcome in (None, "requeue"):
            RunDir(folder).write_outcome("cancelled", {"outcome": "cancelled"})
    if job.task is None:  # no later attempt reads them
        (job.run.path / "secrets.env").unlink(missing_ok=True)


def _folders(job: SubmittedRun) -> list[Path]:
    return list(job.tasks().values()) or [job.run.path]
