"""Finds the job of a run whose submitter was killed before it had noted the job's id."""

from __future__ import annotations

from collections.abc import Mapping

from rankup.core import shell
from rankup.core.rundir import RunDir
from rankup.errors import RankupError
from rankup.run.attempts import attempts
from rankup.schedulers.base import scheduler_named

PATIENCE_S = 60.0


def recover(run: RunDir, scheduler: str, env: Mapping[str, str]) -> str:
    """The id of the job that was submitted from ``run``, noted in its file ``jobs``; "" if there is none.

    Then none will start, either: a marker ends a job that the scheduler does not show yet. The submitter must have
    ended. Raises RankupError if the scheduler does not answer.
    """
    noted = run.path / "jobs"
    if noted.exists() and (ids := noted.read_text().split()):
        return ids[0]
    # The script is written before the scheduler is called, and a submit that has failed removes the directory.
    if not (run.path / "job.sh").exists() or (run.path / "CANCELLED").exists():
        return ""
    job = _in_queue(run, scheduler, env) or _begun(run)
    if job:
        noted.write_text(f"{job}\n")
        noted.chmod(0o600)
    return job


def _in_queue(run: RunDir, name: str, env: Mapping[str, str]) -> str:
    scheduler = scheduler_named(name)
    command = scheduler.find_command()
    if not command:
        return ""
    done = shell.run(command, env=scheduler.clean(env), timeout=PATIENCE_S)
    if done.code != 0:
        raise RankupError(
            "submit-unclear",
            f"{command[0]} does not answer, and only it knows whether a job was submitted from {run.path.name}",
            context=(done.err or done.out).strip()[-300:],
            hint="resume again when the scheduler answers; a second job would repeat the first one's work",
            exit_code=1,
        )
    return next(iter(scheduler.read_found(done, run.path)), "")


def _begun(run: RunDir) -> str:
    """The job that has begun, and may have ended. One that has not begun finds the marker, and ends at once."""
    marker = run.path / "CANCELLED"
    marker.touch(mode=0o600)
    begun = [words[1] for words in attempts(run) if len(words) > 1]
    if begun:
        marker.unlink()
    return begun[0] if begun else ""
