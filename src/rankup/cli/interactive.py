"""``--interactive``: this process becomes the scheduler's client that opens a shell on a job's resources."""

from __future__ import annotations

import os
from typing import NoReturn

from rankup.errors import RankupError
from rankup.resolve.resolved import Resolved
from rankup.schedulers.base import scheduler_named


def become_a_shell(job: Resolved) -> NoReturn:
    """Replace this process by the scheduler's client. There is no run directory and no script."""
    scheduler = scheduler_named(job.site.scheduler)
    command = scheduler.interactive_command(job.spec, job.site)
    try:
        os.execvpe(command[0], command, scheduler.clean(os.environ))
    except OSError as error:
        raise RankupError(
            "scheduler-missing",
            f"cannot start {command[0]}: {error.strerror}",
            hint=f"{command[0]} is a command of the scheduler: run this on a login node of the cluster",
        ) from error
