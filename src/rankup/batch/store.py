"""Finds runs again by directory, id, name or job id."""

from __future__ import annotations

import contextlib
import os
import re
from dataclasses import dataclass, replace
from pathlib import Path

from pydantic import ValidationError

from rankup.core.arrays import indices, task_folder, task_id
from rankup.core.nearest import did_you_mean
from rankup.core.rundir import RunDir
from rankup.errors import RankupError
from rankup.resolve.job_toml import read_job_file
from rankup.run.attempts import attempts
from rankup.spec.jobspec import JobSpec

# 123, 123_4, 123.head, 123[4].head, 123;cluster
_JOB_ID = re.compile(r"(?P<number>\d+)(?:_(?P<task>\d+)|\[(?P<index>\d*)\])?(?:[.;](?P<place>.*))?", re.ASCII)


@dataclass(frozen=True)
class SubmittedRun:
    """A run that was submitted to a scheduler. ``scheduler`` and ``site`` are names.

    ``task`` is set if one task of an array was named: ``ids``, ``tasks`` and ``logs`` are then those of that task.
    """

    run: RunDir
    spec: JobSpec
    scheduler: str
    site: str
    task: int | None = None

    def ids(self) -> tuple[str, ...]:
        """The scheduler's ids, oldest first. Read each time: a job on PBS appends the id of its successor."""
        if self.task is not None:
            return self.ids_of_task(self.task)
        return tuple(line[0] for line in self.jobs())

    def ids_of_task(self, index: int) -> tuple[str, ...]:
        """The same for one task of an array: its id in the array's job, then the ids of its own successors."""
        lines = [line for line in self.jobs() if line[1:] in ([], [str(index)])]
        return tuple(line[0] if line[1:] else task_id(line[0], index) for line in lines)

    def jobs(self) -> list[list[str]]:
        """The lines of ``jobs``: an id, and after that of a task's successor the task's index."""
        try:
            return [line.split() for line in (self.run.path / "jobs").read_text().splitlines() if line]
        except FileNotFoundError:  # a network file system that is late
            return []

    def tasks(self) -> dict[int, Path]:
        """An array's tasks: index → where its outcome and its records are."""
        named = indices(self.spec.array) if self.task is None else [self.task]
        return {index: task_folder(self.run.path, index) for index in named}

    def logs(self, task: int | None = None) -> dict[int | None, Path]:
        """The log of each task, or of ``task`` only; the log of a job without tasks has the key None."""
        tasks = self.tasks()
        if task is not None and task not in tasks:
            raise RankupError(
                "no-such-task",
                f"the job has no task {task}" if tasks else "the job is not an array and has no tasks",
                context=str(self.run.path),
                hint=f"its indices: {self.spec.array}" if tasks else "leave --task out",
            )
        if not tasks:
            return {None: self.run.logs / "job.log"}
        return {i: self.run.logs / f"job-{i}.log" for i in tasks if task in (None, i)}


@dataclass(frozen=True)
class LocalRun(SubmittedRun):
    """A run of ``rankup run``, which has a process and no job."""

    def jobs(self) -> list[list[str]]:
        return [words[1:2] for words in attempts(self.run) if len(words) > 1]


def load(path: Path) -> SubmittedRun:
    """The run in the directory ``path``. Raises ``RankupError`` if no job was submitted from it."""
    path = path.absolute()
    if path.is_dir() and not os.access(path, os.R_OK | os.X_OK):
        raise RankupError(
            "not-your-run",
            f"no permission to read the run directory {str(path)!r}",
            hint="only the owner of a run may read it; `ls -ld` shows the owner",
        )
    local = is_local(path)
    if not local and not ((path / "jobs").exists() and (path / "job.toml").exists()):
        raise RankupError(
            "not-submitted",
            f"no job was submitted from {str(path)!r}",
            hint="a submitted run's directory holds job.toml and jobs; `rankup status` lists them",
        )
    tables = read_job_file(path / "job.toml")
    try:
        # "" in the file means that no value was given.
        spec = JobSpec(**{key: value for key, value in tables["job"].items() if value != ""})
        if local:
            return LocalRun(RunDir(path), spec, "run", "")
        site = tables["site"]
        return SubmittedRun(RunDir(path), spec, site["scheduler"], site["name"])
    except (ValidationError, KeyError) as error:
        raise RankupError(
            "bad-job-file",
            "the job.toml of the run is invalid: it was changed or damaged",
            context=f"{path / 'job.toml'}: {error}",
            hint="restore it from a backup, or submit the job again; job.sh has its directives",
        ) from error


def is_local(path: Path) -> bool:
    """Whether ``path`` is the directory of a run of ``rankup run``."""
    return (path / "attempts").exists() and (path / "job.toml").exists() and not (path / "jobs").exists()


def all_runs(runs_root: Path) -> list[SubmittedRun]:
    """Every run below ``runs_root``, submitted or of ``rankup run``, the latest last.

    Runs of other users and runs with a damaged job.toml are left out, so that they do not hide all others.
    """
    found = []
    for toml in runs_root.glob("*/*/job.toml"):
        with contextlib.suppress(RankupError, OSError):
            found.append((toml.stat().st_mtime_ns, load(toml.parent)))
    return [run for _, run in sorted(found, key=lambda pair: pair[0])]


def find(target: str, runs_root: Path) -> SubmittedRun:
    """The run with this directory, id, job id or name, or in the folder of a name (then its latest run); "" or "last":
    the latest of all.

    The id of a task (``4711_3``, ``12[3].server``) means that task alone.
    """
    if target and (is_run(Path(target)) or is_local(Path(target))):
        return load(Path(target))
    runs = all_runs(runs_root)
    if not runs:
        if target and Path(target).is_dir():
            return load(Path(target))  # which says what is missing there
        raise RankupError(
            "no-runs",
            f"no runs in {str(runs_root)!r}",
            hint="give a run directory, or the directory of runs with --runs-root",
        )
    meanings = (
        [run for run in runs if run.run.path.name == target],
        [named for run in runs if (named := _with_job(run, target))],
        [run for run in runs if run.spec.name == target][-1:],
        [run for run in runs if target and run.run.path.parent == Path(target).absolute()][-1:],
        runs[-1:] if target in ("", "last") else [],
    )
    found: list[SubmittedRun] = next((m for m in meanings if m), [])
    if not found:
        raise RankupError(
            "no-such-run",
            f"no run with the name or id {target!r}{did_you_mean(target, _names(runs))}",
            context=f"in {runs_root}",
            hint="`rankup status --all` lists runs; give a directory, id or name of a run, or id of a job",
        )
    if len(found) > 1:
        raise RankupError(
            "several-runs",
            f"{target!r} is the name or id of {len(found)} runs",
            context=", ".join(str(run.run.path) for run in found),
            hint="give the run directory instead",
        )
    return found[0]


def _names(runs: list[SubmittedRun]) -> set[str]:
    return {name for run in runs for name in (run.spec.name, run.run.path.name, *run.ids())}


def is_run(path: Path) -> bool:
    """Whether ``path`` is the directory of a submitted run, or a directory that this user may not read."""
    try:
        return (path / "jobs").exists()
    except PermissionError:
        return True
    except OSError:  # a name that is too long for a file
        return False


def _with_job(run: SubmittedRun, target: str) -> SubmittedRun | None:
    """``run``, or one task of it, if ``target`` is the id of its job; else None."""
    for ident, *of_task in run.jobs():
        if target == ident or _same_job(ident, target):
            named = _JOB_ID.fullmatch(target)
            task = (named["task"] or named["index"] if named else "") or next(iter(of_task), "")
            return _one_task(run, int(task), target) if task else run
    return None


def _same_job(ident: str, target: str) -> bool:
    """Whether both have the same number, and the same server or cluster if both name one."""
    known, wanted = _JOB_ID.fullmatch(ident), _JOB_ID.fullmatch(target)
    if known is None or wanted is None or known["number"] != wanted["number"]:
        return False
    here, there = known["place"] or "", wanted["place"] or ""
    return here.startswith(there) or bool(here and there.startswith(here))


def _one_task(run: SubmittedRun, index: int, target: str) -> SubmittedRun:
    if index not in run.tasks():
        raise RankupError(
            "no-such-task",
            f"the job has no task {target!r}"
            if run.spec.array
            else f"{target!r} is the id of a task, and the job is not an array",
            context=str(run.run.path),
            hint=f"its indices: {run.spec.array}" if run.spec.array else "give the job id without an index",
        )
    return replace(run, task=index)
