"""Asks schedulers about runs, gently: one question for all the jobs of one scheduler."""

from __future__ import annotations

import os
from collections.abc import Sequence

from rankup.core import shell
from rankup.jobs.standing import Standing, stands
from rankup.jobs.submitted import Submitted
from rankup.jobs.traces import read_traces
from rankup.schedulers.base import JobStatus, Scheduler, scheduler_named


def look(jobs: Sequence[Submitted]) -> list[Standing]:
    """How each of ``jobs`` stands now. Raises ``RankupError`` where a scheduler does not answer.

    Of runs that said themselves how they ended, no scheduler is asked.
    """
    wanted: dict[str, list[str]] = {}
    for job in jobs:
        folders = list(job.tasks().values()) or [job.run.path]
        if not all(read_traces(folder).final for folder in folders):
            wanted.setdefault(job.scheduler, []).extend(job.ids())
    said = {name: ask(scheduler_named(name), ids) for name, ids in wanted.items()}
    return [stands(job, said.get(job.scheduler, {})) for job in jobs]


def ask(scheduler: Scheduler, ids: Sequence[str]) -> dict[str, JobStatus]:
    """What the scheduler knows of ``ids``; those that it has forgotten are left out."""
    known: dict[str, JobStatus] = {}
    if not ids:
        return known
    env = scheduler.clean(os.environ)
    for command in scheduler.status_commands(ids):
        known = scheduler.read_status(shell.run(command, env=env), ids) | known  # the first to know says most
        if all(ident in known for ident in ids):
            break
    return known
