"""``rankup logs``: print the log of a run, whole or of one rank, and follow it to the end of the job."""

from __future__ import annotations

from typing import Annotated

import typer

from rankup.batch.follow import JobLog
from rankup.batch.store import find
from rankup.cli.options import JsonOption
from rankup.cli.output import console
from rankup.cli.output.console import shown
from rankup.cli.output.rank_lines import LineView
from rankup.cli.resume_options import explain_line
from rankup.cli.run_argument import RUNS_ROOT, RunsRootOption, TargetArgument, as_dict, follow_to_end
from rankup.errors import RankupError
from rankup.run.markers import read_markers

app = typer.Typer(add_completion=False, rich_markup_mode=None)


@app.command()
def logs(
    target: TargetArgument = "",
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="print new lines until the job has ended")
    ] = False,
    rank: Annotated[int | None, typer.Option(min=0, metavar="R", help="only the lines of this rank")] = None,
    task: Annotated[int | None, typer.Option(min=0, metavar="I", help="only this task of an array")] = None,
    lines: Annotated[
        int | None, typer.Option("--lines", "-n", min=0, metavar="N", help="only the last N lines")
    ] = None,
    runs_root: RunsRootOption = RUNS_ROOT,
    as_json: JsonOption = False,
) -> None:
    """Print the log of a run. -f follows it to the end of the job, over requeues.

    With -f the exit code is the job's own.
    """
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
            "the job has not printed anything yet",
            context=shown(job.run.logs),
            hint=f"`rankup status {shown(job.run.path)}` shows whether it runs",
            exit_code=1,
        )
    last = log.last(lines)
    if as_json:
        console.print_json({"run": str(job.run.path), "logs": [str(p) for p in paths], "lines": list(last)})
        return
    for folder in job.tasks().values() or [job.run.path]:
        if failure := read_markers(folder).failure:
            console.say(f"rankup: {failure}")
            console.say(f"rankup: {explain_line(job.run)}")
    view = LineView()
    for line in last:
        view.line(None, "out", line)
