"""``rankup run``: any script, on all the processes of this machine, of machines by hand, or of an allocation."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Annotated

import typer

from rankup.cli import console
from rankup.cli.log_view import LineView
from rankup.cli.options import JsonOption, NprocOption, ResumeWithOption, process_count, resume_variables
from rankup.cli.resume_options import RunCommand, ask_about_namesake, end_lines, resumed
from rankup.cli.run_targets import shown
from rankup.core.rundir import RunDir
from rankup.run.execute import LocalJob, Result, execute

app = typer.Typer(add_completion=False, rich_markup_mode=None)


# Options end at the script: everything after it is the script's.
@app.command(cls=RunCommand, context_settings={"allow_interspersed_args": False})
def run(
    context: typer.Context,
    command: Annotated[
        list[str] | None, typer.Argument(help="script.py ARGUMENTS…, or any executable")
    ] = None,
    module: Annotated[bool, typer.Option("-m", help="the command names a module, as in python -m")] = False,
    nproc_per_node: NprocOption = "auto",
    max_restarts: Annotated[int, typer.Option(help="start all processes again after a failure, K times")] = 0,
    nnodes: Annotated[int | None, typer.Option(help="number of machines started by hand")] = None,
    node_rank: Annotated[int | None, typer.Option(help="which of them this is, from 0")] = None,
    rdzv_endpoint: Annotated[str | None, typer.Option(metavar="HOST:PORT", help="where node 0 is")] = None,
    rdzv_timeout: Annotated[float, typer.Option(help="seconds to wait for the other machines")] = 300,
    threads: Annotated[int | None, typer.Option(help="per process; default: cores / processes")] = None,
    name: Annotated[str, typer.Option(help="of the run; default: the script's")] = "",
    runs_root: Annotated[Path, typer.Option(help="where run directories are made")] = Path("runs"),
    run_dir: Annotated[Path | None, typer.Option(hidden=True)] = None,
    resume: Annotated[
        str | None,
        typer.Option(
            metavar="[RUN]", help="go on with a run: its name, directory or id; default: the last one"
        ),
    ] = None,
    resume_with: ResumeWithOption = None,
    as_json: JsonOption = False,
) -> None:
    """Run a script on all processes of this machine or allocation; what follows the script is the script's."""
    job = LocalJob(
        command=(*(["-m"] if module else []), *(command or [])),
        name=name,
        nproc=process_count(nproc_per_node),
        max_restarts=max_restarts,
        nnodes=nnodes,
        node_rank=node_rank,
        endpoint=rdzv_endpoint,
        rdzv_timeout=rdzv_timeout,
        runs_root=runs_root,
        run_dir=run_dir,
        threads=threads,
        terminal=sys.stdin.isatty() and sys.stdout.isatty() and not as_json,
        env=resume_variables(resume_with),
        origin=dict.fromkeys(_given(context), "flag"),
    )
    here = Path.cwd()
    if resume is not None and not (node_rank and command):  # such a node gets the run from node 0
        job = resumed(job, resume)
    elif name and run_dir is None and node_rank in (None, 0):
        job = ask_about_namesake(job)
    quiet = run_dir is not None or as_json  # the head of an allocation speaks for all nodes

    def begun(run: RunDir, said: str) -> None:
        if not quiet:
            console.say(f"rankup: {said}; {shown(run.path)}")

    view = LineView(to_stderr=as_json)
    result = execute(job, view, debug=console.debugging(), begun=begun)
    os.chdir(here)
    if as_json:
        console.print_json(_as_dict(result))  # the error is in it
    elif result.error is not None:
        console.draw_error(result.error)
    if result.lost is not None and not as_json:
        console.draw_error(result.lost)
    for line in end_lines(result, node_rank or 0) if not quiet else ():
        console.say(line)
    raise typer.Exit(result.code)


def _given(context: typer.Context) -> list[str]:
    """The parameters that were flags; the rest are defaults."""
    sources = {name: context.get_parameter_source(name) for name in context.params}
    return [name for name, source in sources.items() if source is not None and source.name == "COMMANDLINE"]


def _as_dict(result: Result) -> dict[str, object]:
    outcome = {"code": result.code, "run": str(result.run.path), "seconds": round(result.seconds, 3)}
    failure = {"worker_code": result.worker_code, "failed_rank": result.failed_rank}
    errors = {"error": result.error, "lost": result.lost}
    return {**outcome, **failure, **{key: e.as_dict() if e else None for key, e in errors.items()}}
