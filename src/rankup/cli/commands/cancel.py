"""``rankup cancel``: end jobs, at once or after they have saved."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from rankup.batch.cancel import cancel, save_and_stop
from rankup.batch.store import SubmittedRun, all_runs, find
from rankup.cli.options import JsonOption
from rankup.cli.output import console
from rankup.cli.output.console import shown
from rankup.cli.run_argument import RUNS_ROOT, RunsRootOption
from rankup.core.units import duration
from rankup.errors import RankupError

app = typer.Typer(add_completion=False, rich_markup_mode=None)


@app.command("cancel")
def cancel_command(
    targets: Annotated[
        list[str] | None,
        typer.Argument(metavar="[RUN…]", help="directories, ids or names of runs, or ids of jobs"),
    ] = None,
    every: Annotated[bool, typer.Option("--all", help="all runs that wait or run")] = False,
    save: Annotated[bool, typer.Option("--save", help="let the ranks save a snapshot and end")] = False,
    runs_root: RunsRootOption = RUNS_ROOT,
    as_json: JsonOption = False,
) -> None:
    """Cancel jobs and their successors, at once or after they have saved.

    4711_3 is one task of an array. Jobs that have ended are left as they are.
    """
    if bool(targets) == every:
        raise RankupError(
            "no-target",
            "`rankup cancel` requires a RUN, or --all",
            hint="`rankup status` lists runs",
        )
    jobs = all_runs(runs_root) if every else [find(target, runs_root) for target in targets or ()]
    answers = [_end(job, save, quiet=every) for job in jobs]
    if as_json:
        console.print_json(answers)
        return
    said = [answer["said"] for answer in answers if answer["said"]]
    print("\n".join(said) or "no runs wait or run")


def _end(job: SubmittedRun, save: bool, quiet: bool) -> dict[str, Any]:
    asked, cancelled = save_and_stop(job) if save else ([], cancel(job))
    path = shown(job.run.path) + ("" if job.task is None else f", task {job.task}")
    said = []
    if asked:
        within = duration(job.spec.lead)
        said.append(f"{path}: {_jobs(job, asked)}asked to save and end within {within}")
    if cancelled:
        said.append(f"{path}: {_jobs(job, cancelled)}cancelled")
    if not said and not quiet:
        said.append(f"{path}: has already ended")
    return {"run": str(job.run.path), "asked_to_save": asked, "cancelled": cancelled, "said": "\n".join(said)}


def _jobs(job: SubmittedRun, ids: list[str]) -> str:
    """``job 4711 ``, or nothing for a run of ``rankup run``, which has a process and no job."""
    return "" if job.scheduler == "run" else f"job {' '.join(ids)} "
