"""Submits a run again in its own directory: it continues from its last snapshot, and its log is appended to."""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from rankup.batch.queue import query_scheduler
from rankup.batch.status import status_of
from rankup.batch.store import SubmittedRun
from rankup.batch.submit import SubmitUnclear, check_folder, disown, hand_over, write_files
from rankup.core.files import writing_to
from rankup.errors import RankupError
from rankup.resolve.precedence import resolve
from rankup.run.markers import RESET_MARKERS, read_markers
from rankup.schedulers.base import JobState, scheduler_named

_WRITTEN_ANEW = ("job.toml", "job.sh", "secrets.env")


def resume(before: SubmittedRun, flags: Mapping[str, Any], *, env: Mapping[str, str]) -> SubmittedRun:
    """Submit the same job again; ``flags`` (keys of ``JobSpec``) replace its values.

    Raises ``RankupError`` while a job of the run waits or runs, and if the run is done. Tasks of an array that are
    done stay done: their jobs find that outcome and end at once.
    """
    if before.task is not None:
        raise RankupError(
            "one-task",
            f"cannot resume task {before.task} of an array alone",
            context=str(before.run.path),
            hint=f"`rankup resume {before.run.path}` submits all tasks again that are not done",
        )
    _check_over(before)
    job = resolve(
        flags, command=(), file=before.run.path / "job.toml", site=None, env=env, folder=before.spec.folder
    )
    if (job.spec.array, job.spec.name) != (before.spec.array, before.spec.name):
        raise RankupError(
            "other-job", "a resumed run must keep its name and its array", hint="submit a new run instead"
        )
    check_folder(job.spec.folder)
    unfinished = [folder for folder in before.tasks().values() if read_markers(folder).outcome != "done"]
    try:
        with writing_to(before.run.path, "run directory"), contextlib.ExitStack() as stack:
            stack.enter_context(_set_aside(before.run.path, (*_WRITTEN_ANEW, *RESET_MARKERS)))
            for folder in unfinished:
                stack.enter_context(_set_aside(folder, RESET_MARKERS))
            write_files(job, before.run, env)
            return hand_over(job, before.run, env)
    except SubmitUnclear as unknown:
        disown(before.run, before.spec)
        raise unknown.error from None


def _check_over(job: SubmittedRun) -> None:
    said = query_scheduler(scheduler_named(job.scheduler), job.ids())
    living = [status for status in said.values() if not status.state.ended]
    standing = status_of(job, said)
    if living:
        raise RankupError(
            "not-over",
            f"the run has not ended: its job {living[0].id} is {living[0].state.value}",
            context=str(job.run.path),
            hint=f"wait for its end, or cancel it first: rankup cancel {job.run.path}",
        )
    if standing.state is JobState.DONE:
        raise RankupError(
            "already-done",
            "the run is done; there is nothing to resume",
            context=str(job.run.path),
            hint=f"run it again from the beginning: rankup submit {job.run.path / 'job.toml'}",
        )


@contextlib.contextmanager
def _set_aside(folder: Path, names: Sequence[str]) -> Iterator[None]:
    """Move the files ``names`` away while the body runs. They are restored if it fails and deleted if it succeeds."""
    aside = folder / ".before-resume"
    aside.mkdir(mode=0o700, exist_ok=True)
    moved = [name for name in names if (folder / name).exists()]
    for name in moved:
        (folder / name).replace(aside / name)
    try:
        yield
    except BaseException:
        for name in names:
            (folder / name).unlink(missing_ok=True)
        for name in moved:
            (aside / name).replace(folder / name)
        aside.rmdir()
        raise
    shutil.rmtree(aside)
