"""What the commands about runs share: how a run is named on the command line, printed and followed."""

from __future__ import annotations

import contextlib
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer

from rankup.batch.follow import Follower, JobLog
from rankup.batch.freeze import read_frozen
from rankup.batch.status import RunStatus
from rankup.batch.store import SubmittedRun, find
from rankup.cli.output.console import say, shown
from rankup.cli.output.rank_lines import LineView
from rankup.core.progress import newest_step
from rankup.errors import RankupError
from rankup.run.interrupts import Interrupts
from rankup.snapshots.layout import MANIFEST, entries, trainings

_ONE = "directory, id or name of a run, or id of a job; default:"
TargetArgument = Annotated[str, typer.Argument(metavar="[RUN]", help=f"{_ONE} the latest run")]
OneOrAllArgument = Annotated[str, typer.Argument(metavar="[RUN]", help=f"{_ONE} a table of all runs")]
RunsRootOption = Annotated[Path, typer.Option(metavar="DIR", help="directory of the run directories")]
RUNS_ROOT = Path("runs")


def place(path: Path, runs_root: Path) -> Path:
    """``path`` itself if it has snapshots, else the directory of the run with that name or id."""
    if (path / "snapshots").is_dir() or (path / MANIFEST).exists() or any(map(entries, trainings(path))):
        return path
    with contextlib.suppress(RankupError):
        return find(str(path), runs_root).run.path
    return path


def as_dict(job: SubmittedRun, standing: RunStatus) -> dict[str, Any]:
    """A run for ``--json``."""
    names = {"run": str(job.run.path), "name": job.spec.name, "site": job.site, "scheduler": job.scheduler}
    tasks = {index: task.as_dict() for index, task in standing.tasks.items()}
    one: dict[str, Any] = {} if job.task is None else {"task": job.task}
    if job.spec.freeze and (frozen := read_frozen(job.run)):
        one["code"] = asdict(frozen)
    if job.task is None and not tasks:
        one["progress"] = newest_step(job.run)
    return {**names, **one, "jobs": job.ids(), **standing.as_dict(), **({"tasks": tasks} if tasks else {})}


def follow_to_end(
    job: SubmittedRun, log: JobLog, *, lines: int | None = None, to_stderr: bool = False
) -> tuple[int, RunStatus | None]:
    """(exit code, how the job ended). The log goes to stdout, what changes to stderr; a Ctrl-C ends only this."""
    view = LineView(to_stderr=to_stderr)
    with Interrupts() as interrupts:
        follower = Follower(job, log, lambda line: view.line(None, "out", line), _say, interrupts)
        if lines is not None:
            follower.backlog(lines)
        standing = follower.follow()
    if standing is not None:
        return standing.exit_code, standing
    path = shown(job.run.path)
    _say(f"the job continues; `rankup logs -f {path}` follows it again, `rankup cancel {path}` cancels it")
    return 128 + (interrupts.first or 0), None


def _say(text: str) -> None:
    say(f"rankup: {text}")
