"""``rankup logs``: what a job printed, all of it or one rank's, and on until the job has ended."""

from __future__ import annotations

from typing import Annotated

import typer

from rankup.batch.follow import JobLog
from rankup.batch.store import find
from rankup.cli import console
from rankup.cli.log_view import LineView
from rankup.cli.options import JsonOption
from rankup.cli.run_targets import RUNS_ROOT, RunsRootOption, TargetArgument, as_dict, follow_to_end, shown
from rankup.errors import RankupError
from rankup.run.markers import read_markers

app = typer.Typer(add_completion=False, rich_markup_mode=None)


@app.command()
def logs(
    target: TargetArgument = "",
    follow: Annotated[bool, typer.Option("--follow", "-f", help="go on until the job has ended")] = False,
    rank: Annotated[int | None, typer.Option(min=0, metavar="R", help="this rank's lines alone")] = None,
    task: Annotated[int | None, typer.Option(min=0, metavar="I", help="this task of an array alone")] = None,
    lines: Annotated[
        int | None, typer.Option("--lines", "-n", min=0, metavar="N", help="the last N only")
    ] = None,
    runs_root: RunsRootOption = RUNS_ROOT,
    as_json: JsonOption = False,
) -> None:
    """Print a job's log. With -f: until its end, over requeues; the exit code is then the job's own."""
    job = find(target, runs_root)
    if task is None:
        task = job.task
    log = JobLog(job, rank=rank, task=task)
    if follow:
        code, standing = follow_to_end(job, log, lines=lines, to_stderr=as_json)
        if as_json:
            console.print_json({**(as_dict(job, standing) if standing else {}), "code": code})
        raise typer.Exit(code)
    paths = [path for path in job.logs(task).values() if path.exists()]
    if not paths:
        raise RankupError(
            "no-log-yet",
            "the job has printed nothing yet",
            context=shown(job.run.logs),
            hint=f"rankup status {shown(job.run.path)}",
            exit_code=1,
        )
    last = log.last(lines)
    if as_json:
        console.print_json({"run": str(job.run.path), "logs": [str(p) for p in paths], "lines": list(last)})
        return
    for folder in job.tasks().values() or [job.run.path]:
        if failure := read_markers(folder).failure:
            console.say(f"rankup: {failure}")
    view = LineView()
    for line in last:
        view.line(None, "out", line)
