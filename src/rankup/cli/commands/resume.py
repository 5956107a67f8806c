"""``rankup resume``: a run that has ended goes on, in its own directory, from its last snapshot."""

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


# The keys of a job that may change between two lives of one run; flags_from reads them from the context.
@app.command("resume")
def resume_command(
    context: typer.Context,
    target: Annotated[str, typer.Argument(help="a run's directory, id or name, or a job's id")],
    nodes: Annotated[int | None, typer.Option(metavar="N", help="number of nodes")] = None,
    gpus_per_node: Annotated[int | None, typer.Option(metavar="G", help="0: a job without GPUs")] = None,
    nproc_per_node: Annotated[int | None, typer.Option(metavar="P", help="processes on each node")] = None,
    cpus_per_task: Annotated[int | None, typer.Option(metavar="C", help="cores of each process")] = None,
    mem: Annotated[str | None, typer.Option(metavar="SIZE", help="per node: 32G")] = None,
    time: Annotated[str | None, typer.Option(metavar="TIME", help="90m, 24h, 1d12h or HH:MM:SS")] = None,
    queue: Annotated[str | None, typer.Option("--queue", "--partition", help="where to wait")] = None,
    account: Annotated[str | None, typer.Option(help="the project that pays")] = None,
    max_requeues: Annotated[int | None, typer.Option(metavar="K", help="counted from here")] = None,
    resume_with: ResumeWithOption = None,
    follow: Annotated[bool, typer.Option("--follow", help="show the log until the job has ended")] = False,
    runs_root: RunsRootOption = RUNS_ROOT,
    as_json: JsonOption = False,
) -> None:
    """Submit a run again that failed, was cancelled or ran out of requeues; options change what it was."""
    before = find(target, runs_root)
    if isinstance(before, LocalRun):
        raise RankupError(
            "local-run",
            f"{shown(before.run.path)} was not submitted: it was started by `rankup run`",
            hint=f"go on with it here: rankup run --resume {shown(before.run.path)}",
        )
    earlier = len(before.ids())
    flags = flags_from(context)
    flags.pop("runs_root", None)  # says where to look; the run stays where it is
    job = resume(before, flags, env=os.environ)
    ident = job.ids()[earlier]
    if not as_json:
        print(f"job {ident} goes on with {shown(job.run.path)}")
    answer: dict[str, Any] = {"run": str(job.run.path), "jobs": job.ids(), "job": ident}
    code = 0
    if follow:
        code, standing = follow_to_end(job, JobLog(job), lines=0, to_stderr=as_json)
        answer |= {**(standing.as_dict() if standing else {}), "code": code}
    if as_json:
        console.print_json(answer)
    raise typer.Exit(code)
