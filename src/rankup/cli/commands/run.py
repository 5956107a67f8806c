"""``rankup run``: any script, on all the processes of this machine, of machines by hand, or of an allocation."""

from __future__ import annotations

import sys
from contextlib import ExitStack
from pathlib import Path
from typing import Annotated, Any

import typer

from rankup.cli.job_options import SCRIPT_LAST, flags_from, job_options
from rankup.cli.options import JsonOption
from rankup.cli.output import console
from rankup.cli.output.console import shown
from rankup.cli.output.rank_lines import LineView
from rankup.cli.resume_options import RunCommand, begins_again, end_lines
from rankup.core.rundir import RunDir
from rankup.resolve.here import resolve_here
from rankup.run.execute import Result, View, execute
from rankup.spec.flag import WHAT

app = typer.Typer(add_completion=False, rich_markup_mode=None)


@app.command(cls=RunCommand, context_settings=SCRIPT_LAST)
@job_options("run")
def run(
    run_dir: Annotated[Path | None, typer.Option(hidden=True)] = None,
    resume: Annotated[
        str | None,
        typer.Option(
            metavar="[RUN]",
            help="resume a run: its name, directory or id; default: the last run",
            rich_help_panel=WHAT,
        ),
    ] = None,
    as_json: JsonOption = False,
    **asked: Any,
) -> None:
    """Run a script on all processes of this machine or allocation; what follows the script is the script's."""
    flags = flags_from(asked)
    command, file = flags.pop("command", ()), None
    head = run_dir is None and not flags.get("node_rank")  # the others get the run from node 0
    before = None
    if resume is not None and (head or not command):
        from rankup.cli.unfinished import run_to_resume

        before = run_to_resume(resume, flags, command)
    elif head and "name" in flags:
        from rankup.cli.unfinished import ask_about_namesake

        before = ask_about_namesake(flags)
    if before is not None:
        file = before / "job.toml"
        flags |= {"name": before.parent.name, "runs_root": before.parents[1]}
        flags |= {"folder": Path.cwd()} if command else {}
    job = resolve_here(flags, command=command, file=file)
    quiet = run_dir is not None or as_json  # the head of an allocation speaks for all nodes
    for note in () if run_dir is not None else job.notes:
        console.say(f"rankup: {note}")

    def begun(run: RunDir, said: str) -> None:
        if not quiet:
            console.say(f"rankup: {said}; {shown(run.path)}")
            if before is not None and begins_again(run):
                console.say("rankup: no snapshot to resume from: the script begins again")

    on_terminal = sys.stdin.isatty() and sys.stdout.isatty() and not as_json
    with ExitStack() as stack:
        view: View = LineView(to_stderr=as_json)
        if on_terminal and head and job.spec.world_size > 1:
            from rankup.cli.output.progress import BarView

            view = stack.enter_context(BarView(job.spec.world_size, plain=False))
        result = execute(
            job,
            view,
            run_dir=run_dir,
            resume=before,
            terminal=on_terminal,
            debug=console.debugging(),
            begun=begun,
        )
    if as_json:
        console.print_json(_as_dict(result))  # the error is in it
    elif result.error is not None:
        console.draw_error(result.error)
    if result.lost is not None and not as_json:
        console.draw_error(result.lost)
    for line in end_lines(result, head=job.spec.node_rank == 0) if not quiet else ():
        console.say(line)
    raise typer.Exit(result.code)


def _as_dict(result: Result) -> dict[str, object]:
    outcome = {"code": result.code, "run": str(result.run.path), "seconds": round(result.seconds, 3)}
    failure = {"worker_code": result.worker_code, "failed_rank": result.failed_rank}
    errors = {"error": result.error, "lost": result.lost}
    return {**outcome, **failure, **{key: e.as_dict() if e else None for key, e in errors.items()}}
