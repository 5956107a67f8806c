"""``--interactive``: this process becomes the scheduler's client that opens a shell on a job's resources."""

from __future__ import annotations

import os
from typing import NoReturn

from rankup.errors import RankupError
from rankup.resolve.resolved import Resolved
from rankup.schedulers.base import scheduler_named


def become_a_shell(resolved: Resolved) -> NoReturn:
    """No run directory, no script: what is typed in that shell is the job."""
    scheduler = scheduler_named(resolved.site.scheduler)
    command = scheduler.interactive_command(resolved.spec, resolved.site)
    try:
        os.execvpe(command[0], command, scheduler.clean(os.environ))
    except OSError as error:
        raise RankupError(
            "scheduler-missing",
            f"{command[0]} cannot be started: {error.strerror}",
            hint="it belongs to the scheduler: log in to a login node of the cluster",
        ) from error
