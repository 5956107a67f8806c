"""``rankup resume``: submit a run again, in its own directory, to continue from its last snapshot."""

from __future__ import annotations

import os
from typing import Annotated, Any

import typer

from rankup.batch.follow import JobLog
from rankup.batch.resume import resume
from rankup.batch.store import LocalRun, find
from rankup.cli.job_options import RESUME_WITH, flags_from, some_job_options
from rankup.cli.options import JsonOption, taking
from rankup.cli.output import console
from rankup.cli.output.console import shown
from rankup.cli.run_argument import RUNS_ROOT, RunsRootOption, follow_to_end
from rankup.errors import RankupError

app = typer.Typer(add_completion=False, rich_markup_mode=None)


# What may change between two attempts of one run.
_CHANGEABLE = (
    *("nodes", "gpus_per_node", "nproc_per_node", "cpus_per_task", "mem", "time", "queue", "account"),
    *("max_requeues", "saves", "lost"),
)


@app.command("resume")
@taking([*some_job_options("submit", *_CHANGEABLE), RESUME_WITH])
def resume_command(
    target: Annotated[
        str, typer.Argument(metavar="RUN", help="directory, id or name of a run, or id of a job")
    ],
    follow: Annotated[bool, typer.Option("--follow", help="print the log until the job has ended")] = False,
    runs_root: RunsRootOption = RUNS_ROOT,
    as_json: JsonOption = False,
    **asked: Any,
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
    job = resume(before, flags_from(asked), env=os.environ)
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
