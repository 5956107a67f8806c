"""``rankup resume``: submit a run again, in its own directory, to continue from its last snapshot."""

from __future__ import annotations

import os
from typing import Annotated, Any

import typer

from rankup.batch.follow import JobLog
from rankup.batch.resume import resume
from rankup.batch.store import LocalRun, find
from rankup.cli import console
from rankup.cli.job_options import flags_from
from rankup.cli.options import JsonOption, ResumeWithOption
from rankup.cli.run_targets import RUNS_ROOT, RunsRootOption, follow_to_end, shown
from rankup.errors import RankupError

app = typer.Typer(add_completion=False, rich_markup_mode=None)


# The keys of a job that may change between two jobs of one run; flags_from reads them from the context.
@app.command("resume")
def resume_command(
    context: typer.Context,
    target: Annotated[
        str, typer.Argument(metavar="RUN", help="directory, id or name of a run, or id of a job")
    ],
    nodes: Annotated[
        int | None, typer.Option(metavar="N", help="number of nodes", rich_help_panel="Resources")
    ] = None,
    gpus_per_node: Annotated[
        int | None,
        typer.Option(
            metavar="G", help="GPUs on each node; 0: a job without GPUs", rich_help_panel="Resources"
        ),
    ] = None,
    nproc_per_node: Annotated[
        int | None, typer.Option(metavar="P", help="processes on each node", rich_help_panel="Resources")
    ] = None,
    cpus_per_task: Annotated[
        int | None, typer.Option(metavar="C", help="CPU cores of each process", rich_help_panel="Resources")
    ] = None,
    mem: Annotated[
        str | None,
        typer.Option(metavar="SIZE", help="memory on each node, e.g. 32G", rich_help_panel="Resources"),
    ] = None,
    time: Annotated[
        str | None,
        typer.Option(
            metavar="TIME", help="time limit: 90m, 24h, 1d12h or HH:MM:SS", rich_help_panel="Resources"
        ),
    ] = None,
    queue: Annotated[
        str | None,
        typer.Option("--queue", "--partition", help="queue or partition", rich_help_panel="Resources"),
    ] = None,
    account: Annotated[
        str | None, typer.Option(help="account to charge", rich_help_panel="Resources")
    ] = None,
    max_requeues: Annotated[
        int | None, typer.Option(metavar="K", help="requeue at most K times, counted from now")
    ] = None,
    resume_with: ResumeWithOption = None,
    follow: Annotated[bool, typer.Option("--follow", help="print the log until the job has ended")] = False,
    runs_root: RunsRootOption = RUNS_ROOT,
    as_json: JsonOption = False,
) -> None:
    """Submit a run again that failed, was cancelled or used up its requeues.

    It continues from its last snapshot, in the same run directory. Options replace those of the earlier job.
    """
    before = find(target, runs_root)
    if isinstance(before, LocalRun):
        raise RankupError(
            "local-run",
            f"{shown(before.run.path)} was started by `rankup run`, not submitted",
            hint=f"resume it here: rankup run --resume {shown(before.run.path)}",
        )
    earlier = len(before.ids())
    flags = flags_from(context)
    flags.pop("runs_root", None)  # where to look for the run, which keeps its directory
    job = resume(before, flags, env=os.environ)
    ident = job.ids()[earlier]
    if not as_json:
        print(f"job {ident} submitted: it resumes {shown(job.run.path)}")
    answer: dict[str, Any] = {"run": str(job.run.path), "jobs": job.ids(), "job": ident}
    code = 0
    if follow:
        code, standing = follow_to_end(job, JobLog(job), lines=0, to_stderr=as_json)
        answer |= {**(standing.as_dict() if standing else {}), "code": code}
    if as_json:
        console.print_json(answer)
    raise typer.Exit(code)
